//! What is in each file: inline parts, mappings, sizes.
//!
//! Owns: the rules between an inode and its own items.
//! Promises: looks at each item once.
//! Never: reads the device.

use sfs_core::format::{
    FileKind, INLINE_LEN_MAX, Inode, InodeFlags, ItemKind, RUN_BLOCKS, SYMLINK_LEN_MAX,
};
use sfs_device::BLOCK_SIZE;

use crate::items::Items;
use crate::namespace::Namespace;
use crate::usage::decode_run;
use crate::{Finding, Findings, xattrs};

/// Checks the content of every file.
pub(crate) fn check(
    items: &Items,
    namespace: &Namespace<'_>,
    hash_key: [u64; 2],
    findings: &mut Findings,
) {
    for (ino, inode) in &namespace.inodes {
        let Some(inode) = inode else { continue };
        check_inline(items, *ino, inode, findings);
        check_mappings(items, *ino, inode, namespace.orphans.contains_key(ino), findings);
        xattrs::check(items, *ino, inode, hash_key, findings);
    }
}

fn check_inline(items: &Items, ino: u64, inode: &Inode, findings: &mut Findings) {
    let is_inline = inode.flags.contains(InodeFlags::INLINE);
    let parts_max = match inode.kind() {
        FileKind::Regular if is_inline => 1,
        FileKind::Symlink => SYMLINK_LEN_MAX.div_ceil(INLINE_LEN_MAX) as u64,
        _ => 0,
    };
    let (mut count, mut counted, mut sound) = (0, 0, true);
    for (key, value) in items.of(ino, ItemKind::Inline) {
        sound &= key.offset == count && value.len() <= INLINE_LEN_MAX;
        count += 1;
        counted += value.len() as u64;
    }
    if !sound || count > parts_max {
        findings.push(Finding::InlineParts { ino });
        return;
    }
    let size = inode.size;
    if parts_max > 0 && size != counted {
        findings.push(Finding::InlineSize { ino, size, counted });
    }
    let lengths = 1..=SYMLINK_LEN_MAX as u64;
    if inode.kind() == FileKind::Symlink && !lengths.contains(&size) {
        findings.push(Finding::SymlinkSize { ino, size });
    }
}

fn check_mappings(
    items: &Items,
    ino: u64,
    inode: &Inode,
    has_orphan: bool,
    findings: &mut Findings,
) {
    let may_have = inode.kind() == FileKind::Regular && !inode.flags.contains(InodeFlags::INLINE);
    let end = inode.size.div_ceil(BLOCK_SIZE as u64);
    let (mut counted, mut beyond) = (0, None);
    for (key, value) in items.of(ino, ItemKind::Mapping) {
        let Some(run) = decode_run(key, value) else { return };
        for (block, _) in run.iter(key.offset as u32 * RUN_BLOCKS) {
            counted += 1;
            if u64::from(block) >= end {
                beyond = beyond.or(Some(block));
            }
        }
    }
    if counted > 0 && !may_have {
        findings.push(Finding::MappingOwner { ino });
        return;
    }
    if counted != inode.blocks {
        findings.push(Finding::BlockCount { ino, blocks: inode.blocks, counted });
    }
    if let Some(block) = beyond.filter(|_| !has_orphan) {
        findings.push(Finding::MappingBeyondEnd { ino, block });
    }
}
