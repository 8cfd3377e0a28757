//! Check of one inode: its attributes, inline parts, mappings and extended attributes against each other.
//!
//! Items arrive one by one, in the order of their keys. Other inodes play no part here.

use sfs_core::format::{
    DecodeError, Features, FileKind, INLINE_LEN_MAX, Inode, InodeFlags, Key, RUN_BLOCKS,
    SYMLINK_LEN_MAX, Tolerance,
};
use sfs_device::BLOCK_SIZE;

use crate::check::xattrs::XattrCheck;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::read::mapping::decode_run;

/// Inode whose items are arriving.
pub(crate) struct FileCheck {
    pub(crate) ino: u64,
    /// `true` if the inode has attributes, sound or not.
    pub(crate) exists: bool,
    /// Attributes, if they decode.
    pub(crate) inode: Option<Inode>,
    /// Number of directory entries of the inode.
    pub(crate) entries: u64,
    /// Number of the entries that are directories.
    pub(crate) subdirectories: u32,
    xattrs: XattrCheck,
    inline: InlineParts,
    mapped: MappedBlocks,
}

/// Inline parts so far.
struct InlineParts {
    parts: u64,
    bytes: u64,
    sound: bool,
}

/// Mappings so far.
struct MappedBlocks {
    blocks: u64,
    /// Last mapped block.
    last: Option<u32>,
    /// First mapped block at or past the end of the file.
    beyond: Option<u32>,
    sound: bool,
}

impl FileCheck {
    /// Returns the check of inode `ino`, before its first item.
    pub(crate) fn new(ino: u64) -> Self {
        Self {
            ino,
            exists: false,
            inode: None,
            entries: 0,
            subdirectories: 0,
            xattrs: XattrCheck::default(),
            inline: InlineParts { parts: 0, bytes: 0, sound: true },
            mapped: MappedBlocks { blocks: 0, last: None, beyond: None, sound: true },
        }
    }

    /// Adds the attributes.
    pub(crate) fn add_inode(&mut self, value: &[u8], tolerance: Tolerance) {
        self.exists = true;
        self.inode = Inode::decode(value, self.ino, tolerance).ok();
    }

    /// Adds the next part of an extended attribute.
    pub(crate) fn add_xattr(&mut self, key: &Key, value: &[u8], hash_key: [u64; 2]) {
        self.xattrs.add(key, value, hash_key);
    }

    /// Adds the next inline part.
    pub(crate) fn add_inline(&mut self, key: &Key, value: &[u8]) {
        self.inline.sound &= key.offset == self.inline.parts && value.len() <= INLINE_LEN_MAX;
        self.inline.parts += 1;
        self.inline.bytes += value.len() as u64;
    }

    /// Counts the mappings of a run.
    ///
    /// # Errors
    ///
    /// Decoding error of the run.
    pub(crate) fn add_mappings(
        &mut self,
        key: &Key,
        value: &[u8],
        tolerance: Tolerance,
    ) -> Result<(), DecodeError> {
        let run = decode_run(key, value, tolerance).inspect_err(|_| self.mapped.sound = false)?;
        let end = self.inode.map_or(u64::MAX, |inode| inode.size.div_ceil(BLOCK_SIZE as u64));
        for (block, _) in run.iter(key.offset as u32 * RUN_BLOCKS) {
            self.mapped.blocks += 1;
            self.mapped.last = Some(block);
            if u64::from(block) >= end {
                self.mapped.beyond = self.mapped.beyond.or(Some(block));
            }
        }
        Ok(())
    }

    /// Checks the items against each other, after the last one. `is_truncating` allows mappings past the
    /// end; `features` are those of the superblock.
    pub(crate) fn finish(
        &mut self,
        is_truncating: bool,
        features: &Features,
        findings: &mut Findings,
    ) {
        let ino = self.ino;
        self.xattrs.finish();
        let Some(inode) = self.inode else { return };
        let counted = self.entries;
        if inode.kind() == FileKind::Directory && inode.size != counted {
            findings.push(Finding::DirectorySize { ino, size: inode.size, counted });
        }
        self.check_inline(&inode, findings);
        if self.mapped.sound {
            self.check_mappings(&inode, is_truncating, findings);
        }
        if inode.flags.contains(InodeFlags::XATTRS) != self.xattrs.any() {
            findings.push(Finding::XattrFlag { ino });
        }
        let needs_feature = inode.flags.intersects(InodeFlags::OF_USERS);
        if needs_feature && features.read_only_compatible & Features::INODE_FLAGS == 0 {
            findings.push(Finding::FlagFeature { ino });
        }
        self.xattrs.report(ino, findings);
        self.xattrs.report_lists(ino, &inode, findings);
    }

    /// Returns whether the inode has an access list, sound or not. Valid after the last item.
    pub(crate) fn has_list(&self) -> bool {
        self.xattrs.any_list()
    }

    fn check_inline(&self, inode: &Inode, findings: &mut Findings) {
        let (ino, size) = (self.ino, inode.size);
        let is_inline = inode.flags.contains(InodeFlags::INLINE);
        let parts_max = match inode.kind() {
            FileKind::Regular if is_inline => 1,
            FileKind::Symlink => SYMLINK_LEN_MAX.div_ceil(INLINE_LEN_MAX) as u64,
            _ => 0,
        };
        let InlineParts { parts, bytes: counted, sound } = self.inline;
        if !sound || parts > parts_max {
            findings.push(Finding::InlineParts { ino });
            return;
        }
        if parts_max > 0 && size != counted {
            findings.push(Finding::InlineSize { ino, size, counted });
        }
        let lengths = 1..=SYMLINK_LEN_MAX as u64;
        if inode.kind() == FileKind::Symlink && !lengths.contains(&size) {
            findings.push(Finding::SymlinkSize { ino, size });
        }
    }

    fn check_mappings(&self, inode: &Inode, is_truncating: bool, findings: &mut Findings) {
        let ino = self.ino;
        let is_inline = inode.flags.contains(InodeFlags::INLINE);
        let counted = self.mapped.blocks;
        if counted > 0 && (inode.kind() != FileKind::Regular || is_inline) {
            findings.push(Finding::MappingOwner { ino });
            return;
        }
        if counted != inode.blocks {
            findings.push(Finding::BlockCount { ino, blocks: inode.blocks, counted });
        }
        if let Some(block) = self.mapped.beyond.filter(|_| !is_truncating) {
            findings.push(Finding::MappingBeyondEnd { ino, block });
        }
    }

    /// Guesses kind and size from the items of an inode whose attributes are lost.
    pub(crate) fn guess(&self) -> Option<(FileKind, u64)> {
        let mapped = self.mapped.last.map(|last| (u64::from(last) + 1) * BLOCK_SIZE as u64);
        match mapped {
            _ if self.entries > 0 => Some((FileKind::Directory, self.entries)),
            Some(size) => Some((FileKind::Regular, size)),
            None if self.inline.parts == 1 && self.inline.sound => {
                Some((FileKind::Regular, self.inline.bytes))
            }
            None => None,
        }
    }
}
