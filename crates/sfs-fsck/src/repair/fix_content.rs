//! Fixes of the content of files: inline parts, extended attributes, mappings.
//!
//! A block of a regular file is kept, or copied, if it matches its checksum. Names are not changed here.

use std::cmp::Ordering;

use sfs_core::format::{
    FileKind, INLINE_LEN_MAX, InodeFlags, ItemKind, Key, RUN_BLOCKS, Reservation,
};
use sfs_device::{BLOCK_SIZE, Block};

use crate::finding::Finding;
use crate::read::key_range::KeyRange;
use crate::read::mapping::decode_run;
use crate::repair::editor::TreeEditor;
use crate::repair::fix_access_lists;
use crate::repair::loss::Loss;

/// Fixes a finding about the content of a file, or plans to write a node again. Other findings stay.
pub(crate) fn fix_content(editor: &mut TreeEditor<'_, '_>, finding: &Finding) {
    match *finding {
        Finding::InlineParts { ino } => correct_inline(editor, ino),
        Finding::InlineSize { ino, counted, .. } => resize_inline(editor, ino, counted),
        Finding::SymlinkSize { ino, .. } => drop_symlink(editor, ino),
        Finding::XattrTwice { ino, offset } => drop_xattr(editor, ino, offset),
        Finding::XattrParts { ino, offset }
        | Finding::XattrHash { ino, offset }
        | Finding::AccessListInvalid { ino, offset } => {
            fix_access_lists::before_drop(editor, ino, offset);
            drop_xattr(editor, ino, offset);
        }
        Finding::XattrFlag { ino } => correct_xattr_flag(editor, ino),
        Finding::AccessListMode { ino, offset, mode, shown } => {
            fix_access_lists::restrict_to_both(editor, ino, offset, mode & shown);
        }
        Finding::BlockCount { ino, blocks, counted } => {
            if blocks > counted && !has_lost_bytes(editor, ino) {
                lose_some(editor, ino, blocks - counted);
            }
            editor.change_inode(ino, |inode| inode.blocks = counted);
        }
        Finding::MappingOwner { ino } => {
            editor.lose(Loss::Item { ino, kind: ItemKind::Mapping as u8 });
            editor.drop_kind(ino, ItemKind::Mapping);
        }
        Finding::ReservationOwner { ino } => {
            editor.lose(Loss::Item { ino, kind: ItemKind::Reservation as u8 });
            editor.drop_kind(ino, ItemKind::Reservation);
        }
        Finding::ReservationFlag { ino } => {
            editor.change_inode(ino, |inode| inode.flags.set(InodeFlags::RESERVED, true));
        }
        Finding::ReservationOverlap { ino, first } => drop_reservation(editor, ino, first),
        Finding::MappingBeyondEnd { ino, .. } => lengthen(editor, ino),
        Finding::MappingOutside { ino, block, .. } | Finding::DataDamaged { ino, block, .. } => {
            lose_block(editor, ino, block);
        }
        Finding::MappingUnknown { ino, block, address } => {
            copy_block(editor, ino, block, address);
        }
        Finding::MappingShared { ino, block, address, other } => {
            share_block(editor, ino, block, address, other);
        }
        Finding::NodeUnknown { address } | Finding::NodeShared { address } => {
            editor.plan.rewrites.insert(address);
        }
        // Other modules fix superblocks, checkpoints, nodes, log and usage.
        _ => {}
    }
}

/// Drops the reservation of `ino` that begins with block `first`. Its blocks are no lost content.
fn drop_reservation(editor: &mut TreeEditor<'_, '_>, ino: u64, first: u32) {
    let key = Reservation::key_of(ino, first);
    let value = editor.tree.get(&key);
    let Some(range) = value.and_then(|value| Reservation::decode(&key, &value).ok()) else {
        return;
    };
    editor.lose(Loss::Item { ino, kind: ItemKind::Reservation as u8 });
    editor.tree.edits.delete(key);
    editor.change_inode(ino, |inode| inode.blocks = inode.blocks.saturating_sub(range.blocks()));
}

/// Records the loss of `count` blocks of `ino`: within the range of the file's lost keys, if the
/// file has any, or else in the whole file.
fn lose_some(editor: &mut TreeEditor<'_, '_>, ino: u64, count: u64) {
    let run_len = u64::from(RUN_BLOCKS) * BLOCK_SIZE as u64;
    let end = editor.inode(ino).map_or(0, |inode| inode.size);
    let byte_of = |key: &Key| match (key.ino.cmp(&ino), key.kind.cmp(&(ItemKind::Mapping as u8))) {
        (Ordering::Less, _) | (Ordering::Equal, Ordering::Less) => 0,
        (Ordering::Greater, _) | (Ordering::Equal, Ordering::Greater) => end,
        (Ordering::Equal, Ordering::Equal) => key.offset.saturating_mul(run_len).min(end),
    };
    let file = KeyRange::of_inode(ino);
    let lost = editor.tree.lost().iter().filter(|range| range.overlaps(&file));
    let ranges = lost.map(|lost| (byte_of(&lost.low), lost.high.map_or(end, |key| byte_of(&key))));
    let bounds = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let (first, end) = bounds.unwrap_or((0, end));
    editor.lose(Loss::Blocks { ino, count, first, last: end.saturating_sub(1) });
}

/// Returns whether a loss of bytes of `ino` is recorded.
fn has_lost_bytes(editor: &TreeEditor<'_, '_>, ino: u64) -> bool {
    let first = Loss::Bytes { ino, first: 0, last: 0 };
    let last = Loss::Bytes { ino, first: u64::MAX, last: u64::MAX };
    editor.plan.losses.range(first..=last).next().is_some()
}

fn correct_inline(editor: &mut TreeEditor<'_, '_>, ino: u64) {
    let Some(inode) = editor.inode(ino) else { return };
    let is_inline = inode.flags.contains(InodeFlags::INLINE);
    match inode.kind() {
        FileKind::Symlink => drop_symlink(editor, ino),
        FileKind::Regular if is_inline => {
            let first = Key::new(ino, ItemKind::Inline, 0);
            let content = editor.tree.get(&first);
            let content = content.filter(|content| content.len() <= INLINE_LEN_MAX);
            editor.drop_kind(ino, ItemKind::Inline);
            let len = content.as_ref().map_or(0, |content| content.len() as u64);
            if let Some(content) = content {
                editor.tree.edits.put(first, content);
            }
            resize_inline(editor, ino, len);
        }
        _ => {
            editor.lose(Loss::Item { ino, kind: ItemKind::Inline as u8 });
            editor.drop_kind(ino, ItemKind::Inline);
        }
    }
}

/// Sets the size of a file to the `counted` bytes of its inline parts.
fn resize_inline(editor: &mut TreeEditor<'_, '_>, ino: u64, counted: u64) {
    let Some(inode) = editor.inode(ino) else { return };
    if inode.kind() == FileKind::Symlink {
        return drop_symlink(editor, ino);
    }
    if inode.size > counted {
        editor.lose(Loss::Tail { ino, first: counted, last: inode.size - 1 });
    }
    editor.change_inode(ino, |inode| inode.size = counted);
}

/// Drops a symbolic link: part of a target would lead elsewhere.
fn drop_symlink(editor: &mut TreeEditor<'_, '_>, ino: u64) {
    editor.lose(Loss::Target { ino });
    editor.drop_range(KeyRange::of_inode(ino));
}

fn drop_xattr(editor: &mut TreeEditor<'_, '_>, ino: u64, offset: u64) {
    editor.lose(Loss::Xattr { ino });
    let low = Key::new(ino, ItemKind::Xattr, offset >> 16 << 16);
    let last = Key { offset: offset | 0xffff, ..low };
    editor.drop_range(KeyRange { low, high: Some(last.next()) });
}

fn correct_xattr_flag(editor: &mut TreeEditor<'_, '_>, ino: u64) {
    let any = editor.has(ino, ItemKind::Xattr);
    if !any {
        editor.lose(Loss::Xattr { ino });
    }
    editor.change_inode(ino, |inode| inode.flags.set(InodeFlags::XATTRS, any));
}

/// Sets the size of a file to the end of its last block, so that no block of it is dropped.
fn lengthen(editor: &mut TreeEditor<'_, '_>, ino: u64) {
    let tolerance = editor.tree.volume.superblock.tolerance();
    let mut end = 0;
    editor.tree.each(KeyRange::of_kind(ino, ItemKind::Mapping), |key, value| {
        let run = decode_run(key, value, tolerance);
        let blocks = run.iter().flat_map(|run| run.iter(key.offset as u32 * RUN_BLOCKS));
        end = blocks.map(|(block, _)| u64::from(block) + 1).fold(end, u64::max);
    });
    editor.change_inode(ino, |inode| inode.size = end * BLOCK_SIZE as u64);
}

/// Unmaps a block, unless an earlier fix did.
fn lose_block(editor: &mut TreeEditor<'_, '_>, ino: u64, block: u32) {
    if editor.tree.mapping(ino, block).is_none() {
        return;
    }
    let first = u64::from(block) * BLOCK_SIZE as u64;
    editor.lose(Loss::Bytes { ino, first, last: first + BLOCK_SIZE as u64 - 1 });
    // A run that does not decode has its own finding, and is dropped.
    let _ = editor.tree.map(ino, block, None);
}

/// Fixes a block that two files refer to. A checksum shows which file owns the block. Without a
/// checksum, as for a block that is overwritten in place, each file gets a copy, which may be the
/// data of the other.
fn share_block(editor: &mut TreeEditor<'_, '_>, ino: u64, block: u32, address: u64, other: u64) {
    let mapping = editor.tree.mapping(ino, block);
    if mapping.is_none_or(|mapping| mapping.checksum.is_some()) {
        return copy_block(editor, ino, block, address);
    }
    editor.plan.copies.insert((ino, block));
    for ino in [ino, other] {
        editor.lose(Loss::Shared { ino, address });
    }
}

/// Plans a copy of a block that no summary confirms, if the block matches its checksum; else unmaps it.
fn copy_block(editor: &mut TreeEditor<'_, '_>, ino: u64, block: u32, address: u64) {
    let mapping = editor.tree.mapping(ino, block);
    let mut content = Block::zeroed(1);
    let is_read = editor.tree.volume.device.read(address, &mut content).is_ok();
    let matches = mapping.is_some_and(|mapping| {
        let is_content = |checksum| checksum == crc32c::crc32c(&content[0].0);
        mapping.address == address && mapping.checksum.is_some_and(is_content)
    });
    if is_read && matches {
        editor.plan.copies.insert((ino, block));
    } else {
        lose_block(editor, ino, block);
    }
}
