//! Check of one inode: its attributes, inline parts, mappings and extended attributes against each other.
//!
//! Items arrive one by one, in the order of their keys. Other inodes play no part here.

use sfs_core::format::{
    DecodeError, Features, FileKind, INLINE_LEN_MAX, Inode, InodeFlags, Key, RUN_BLOCKS,
    Reservation, SYMLINK_LEN_MAX, Tolerance,
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
    reserved: ReservedBlocks,
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

/// Reservations so far, and the mapped blocks of a file that may have some.
#[derive(Default)]
struct ReservedBlocks {
    blocks: u64,
    /// Last reserved block.
    last: Option<u32>,
    /// First block of a range that overlaps a mapped block or another range.
    overlapping: Vec<u32>,
    /// Runs with mapped blocks: number and bitmap, ascending by number.
    mapped: Vec<(u32, u32)>,
}

impl ReservedBlocks {
    /// Adds the mapped blocks of a run, which is after all earlier ones.
    fn add_run(&mut self, number: u32, mapped: impl Iterator<Item = u32>) {
        let bitmap = mapped.fold(0, |bitmap, block| bitmap | 1 << (block % RUN_BLOCKS));
        self.mapped.push((number, bitmap));
    }

    /// Adds a reserved range, which begins after all earlier ones.
    fn add(&mut self, range: Reservation) {
        let overlaps_last = self.last.is_some_and(|last| last >= range.first);
        if overlaps_last || self.is_mapped_in(range) {
            self.overlapping.push(range.first);
            return;
        }
        self.blocks += range.blocks();
        self.last = Some(range.last);
    }

    fn is_mapped_in(&self, range: Reservation) -> bool {
        let (first, last) = (range.first / RUN_BLOCKS, range.last / RUN_BLOCKS);
        let from = self.mapped.partition_point(|(number, _)| *number < first);
        let runs = self.mapped[from..].iter().take_while(|(number, _)| *number <= last);
        runs.into_iter().any(|(number, bitmap)| {
            let base = number * RUN_BLOCKS;
            let low = range.first.saturating_sub(base);
            let high = (range.last - base).min(RUN_BLOCKS - 1);
            bitmap & (u32::MAX << low) & (u32::MAX >> (RUN_BLOCKS - 1 - high)) != 0
        })
    }
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
            reserved: ReservedBlocks::default(),
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
        if self.may_be_reserved() {
            let blocks = run.iter(key.offset as u32 * RUN_BLOCKS).map(|(block, _)| block);
            self.reserved.add_run(key.offset as u32, blocks);
        }
        for (block, _) in run.iter(key.offset as u32 * RUN_BLOCKS) {
            self.mapped.blocks += 1;
            self.mapped.last = Some(block);
            if u64::from(block) >= end {
                self.mapped.beyond = self.mapped.beyond.or(Some(block));
            }
        }
        Ok(())
    }

    /// Returns whether the file may have reservations, by its flag.
    fn may_be_reserved(&self) -> bool {
        self.inode.is_some_and(|inode| inode.flags.contains(InodeFlags::RESERVED))
    }

    /// Adds the next reservation; returns `false` if it does not decode.
    pub(crate) fn add_reservation(&mut self, key: &Key, value: &[u8]) -> bool {
        let range = Reservation::decode(key, value);
        if let Ok(range) = range {
            self.reserved.add(range);
        }
        range.is_ok()
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
        if !self.check_reservations(&inode, findings) {
            return;
        }
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

    /// Checks the reservations; returns whether their blocks can be counted.
    fn check_reservations(&self, inode: &Inode, findings: &mut Findings) -> bool {
        let (ino, reserved) = (self.ino, &self.reserved);
        if reserved.last.is_none() && reserved.overlapping.is_empty() {
            return true;
        }
        if inode.kind() != FileKind::Regular {
            findings.push(Finding::ReservationOwner { ino });
        } else if !self.may_be_reserved() {
            findings.push(Finding::ReservationFlag { ino });
        } else {
            let overlapping = reserved.overlapping.iter();
            overlapping.for_each(|first| {
                findings.push(Finding::ReservationOverlap { ino, first: *first });
            });
            return reserved.overlapping.is_empty();
        }
        false
    }

    fn check_mappings(&self, inode: &Inode, is_truncating: bool, findings: &mut Findings) {
        let ino = self.ino;
        let is_inline = inode.flags.contains(InodeFlags::INLINE);
        let counted = self.mapped.blocks + self.reserved.blocks;
        if self.mapped.blocks > 0 && (inode.kind() != FileKind::Regular || is_inline) {
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
