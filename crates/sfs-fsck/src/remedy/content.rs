//! Remedies for what is in a file: small content, attributes, blocks.
//!
//! Owns: the edits to inline parts, extended attributes and mappings.
//! Promises: a block is given up only if its content is not what its checksum says.
//! Never: touches a name.

use sfs_core::format::{FileKind, InodeFlags, ItemKind, Key, RUN_BLOCKS};
use sfs_device::{BLOCK_SIZE, Block};

use super::Remedies;
use crate::usage::decode_run;
use crate::walk::Keys;
use crate::{Finding, Loss, salvage};

impl Remedies<'_, '_> {
    pub(super) fn remedy_content(&mut self, finding: &Finding) {
        match *finding {
            Finding::InlineParts { ino } => self.correct_inline(ino),
            Finding::InlineSize { ino, counted, .. } => self.resize_inline(ino, counted),
            Finding::SymlinkSize { ino, .. } => self.drop_symlink(ino),
            Finding::XattrParts { ino, offset }
            | Finding::XattrHash { ino, offset }
            | Finding::XattrTwice { ino, offset } => self.drop_xattr(ino, offset),
            Finding::XattrFlag { ino } => self.correct_xattr_flag(ino),
            Finding::BlockCount { ino, blocks, counted } => {
                if blocks > counted && !self.is_told(ino) {
                    self.lose_some(ino, blocks - counted);
                }
                self.change_inode(ino, |inode| inode.blocks = counted);
            }
            Finding::MappingOwner { ino } => {
                self.lose(Loss::Item { ino, kind: ItemKind::Mapping as u8 });
                self.drop_kind(ino, ItemKind::Mapping);
            }
            Finding::MappingBeyondEnd { ino, .. } => self.lengthen(ino),
            Finding::MappingOutside { ino, block, .. }
            | Finding::DataDamaged { ino, block, .. } => {
                self.lose_block(ino, block);
            }
            Finding::MappingUnknown { ino, block, address } => {
                self.copy_block(ino, block, address);
            }
            Finding::MappingShared { ino, block, address, other } => {
                self.share_block(ino, block, address, other);
            }
            Finding::NodeUnknown { address } | Finding::NodeShared { address } => {
                self.plan.rewrites.insert(address);
            }
            // Superblocks, checkpoints, nodes, log and usage have remedies of their own.
            _ => {}
        }
    }

    /// So many blocks of `ino` are gone: within the keys that were lost, if some were.
    fn lose_some(&mut self, ino: u64, count: u64) {
        let run_len = u64::from(RUN_BLOCKS) * BLOCK_SIZE as u64;
        let end = self.inode(ino).map_or(0, |inode| inode.size);
        let place = |key: &Key| match (key.ino, key.kind.cmp(&(ItemKind::Mapping as u8))) {
            (at, _) if at != ino => {
                if at < ino {
                    0
                } else {
                    end
                }
            }
            (_, std::cmp::Ordering::Less) => 0,
            (_, std::cmp::Ordering::Equal) => key.offset.saturating_mul(run_len).min(end),
            (_, std::cmp::Ordering::Greater) => end,
        };
        let file = Keys::of(ino);
        let lost = self.view.lost().iter().filter(|keys| keys.overlaps(&file));
        let ranges = lost.map(|keys| (place(&keys.low), keys.high.map_or(end, |key| place(&key))));
        let bounds = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (first, end) = bounds.unwrap_or((0, end));
        self.lose(Loss::Blocks { ino, count, first, last: end.saturating_sub(1) });
    }

    /// Whether bytes of `ino` were already said to be lost.
    fn is_told(&self, ino: u64) -> bool {
        let first = Loss::Bytes { ino, first: 0, last: 0 };
        let last = Loss::Bytes { ino, first: u64::MAX, last: u64::MAX };
        self.plan.losses.range(first..=last).next().is_some()
    }

    fn correct_inline(&mut self, ino: u64) {
        let Some(inode) = self.inode(ino) else { return };
        let is_inline = inode.flags.contains(InodeFlags::INLINE);
        match inode.kind() {
            FileKind::Symlink => self.drop_symlink(ino),
            FileKind::Regular if is_inline => {
                let first = Key::new(ino, ItemKind::Inline, 0);
                let content = self.view.get(&first);
                let content = content.filter(|c| c.len() <= sfs_core::format::INLINE_LEN_MAX);
                self.drop_kind(ino, ItemKind::Inline);
                let len = content.as_ref().map_or(0, |content| content.len() as u64);
                if let Some(content) = content {
                    self.view.edits.put(first, content);
                }
                self.resize_inline(ino, len);
            }
            _ => {
                self.lose(Loss::Item { ino, kind: ItemKind::Inline as u8 });
                self.drop_kind(ino, ItemKind::Inline);
            }
        }
    }

    /// A file's inline content has `counted` bytes.
    fn resize_inline(&mut self, ino: u64, counted: u64) {
        let Some(inode) = self.inode(ino) else { return };
        if inode.kind() == FileKind::Symlink {
            return self.drop_symlink(ino);
        }
        if inode.size > counted {
            self.lose(Loss::Tail { ino, first: counted, last: inode.size - 1 });
        }
        self.change_inode(ino, |inode| inode.size = counted);
    }

    /// Half a target leads elsewhere: better none.
    fn drop_symlink(&mut self, ino: u64) {
        self.lose(Loss::Target { ino });
        self.drop_keys(Keys::of(ino));
    }

    fn drop_xattr(&mut self, ino: u64, offset: u64) {
        self.lose(Loss::Xattr { ino });
        let low = Key::new(ino, ItemKind::Xattr, offset >> 16 << 16);
        self.drop_keys(Keys { low, high: Some(Key { offset: offset | 0xffff, ..low }.next()) });
    }

    fn correct_xattr_flag(&mut self, ino: u64) {
        let any = self.has(ino, ItemKind::Xattr);
        if !any {
            self.lose(Loss::Xattr { ino });
        }
        self.change_inode(ino, |inode| inode.flags.set(InodeFlags::XATTRS, any));
    }

    /// The file is as long as its last block says: what a summary owns is not thrown away.
    fn lengthen(&mut self, ino: u64) {
        let tolerance = self.view.volume.superblock.tolerance();
        let mut end = 0;
        let low = Key::new(ino, ItemKind::Mapping, 0);
        let keys = Keys { low, high: Some(Key::new(ino, ItemKind::Dirent, 0)) };
        self.view.each(keys, |key, value| {
            let run = decode_run(key, value, tolerance);
            let blocks = run.iter().flat_map(|run| run.iter(key.offset as u32 * RUN_BLOCKS));
            end = blocks.map(|(block, _)| u64::from(block) + 1).fold(end, u64::max);
        });
        self.change_inode(ino, |inode| inode.size = end * BLOCK_SIZE as u64);
    }

    /// Unmaps a block, if that has not been done.
    fn lose_block(&mut self, ino: u64, block: u32) {
        if salvage::mapping(self.view, ino, block).is_none() {
            return;
        }
        let first = u64::from(block) * BLOCK_SIZE as u64;
        self.lose(Loss::Bytes { ino, first, last: first + BLOCK_SIZE as u64 - 1 });
        // A run that does not decode is found, and dropped, on its own.
        let _ = self.view.map(ino, block, None);
    }

    /// Two files claim a block. Where it has a checksum, that tells; where it is overwritten in place,
    /// each gets a copy, and what is in it may be the other's.
    fn share_block(&mut self, ino: u64, block: u32, address: u64, other: u64) {
        let mapping = salvage::mapping(self.view, ino, block);
        if mapping.is_none_or(|mapping| mapping.checksum.is_some()) {
            return self.copy_block(ino, block, address);
        }
        self.plan.copies.insert((ino, block));
        for ino in [ino, other] {
            self.lose(Loss::Shared { ino, address });
        }
    }

    /// A block that no summary says is this one: it is, if it has the checksum.
    fn copy_block(&mut self, ino: u64, block: u32, address: u64) {
        let mapping = salvage::mapping(self.view, ino, block);
        let mut content = Block::zeroed(1);
        let is_read = self.view.volume.device.read(address, &mut content).is_ok();
        let matches = mapping.is_some_and(|mapping| {
            let is_content = |checksum| checksum == crc32c::crc32c(&content[0].0);
            mapping.address == address && mapping.checksum.is_some_and(is_content)
        });
        if is_read && matches {
            self.plan.copies.insert((ino, block));
        } else {
            self.lose_block(ino, block);
        }
    }
}
