//! The check: one stage after the other.
//!
//! Owns: the order of the stages.
//! Promises: a tree that is not whole is said to be so, and not blamed for what it lacks.
//! Never: prints or writes.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sfs_core::format::CheckpointRecord;
use sfs_device::{BLOCK_SIZE, Device};

use crate::mappings::Mappings;
use crate::namespace::Namespace;
use crate::progress::Progress;
use crate::roll_forward::roll_forward;
use crate::tree::Tree;
use crate::usage::Usage;
use crate::volume::Volume;
use crate::{Finding, Findings, FsckError, Report, content, tree, usage};

/// What to check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Read every data block and compare it with its checksum.
    pub data: bool,
}

/// Checks the volume on `device`, which nobody must be writing to.
///
/// # Errors
///
/// Only if there is nothing to check; damage is in the report.
pub fn check(
    device: &dyn Device,
    options: &Options,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Report, FsckError> {
    let mut findings = Findings::default();
    let volume = Volume::open(device, &mut findings)?;
    let mut report = Report::default();
    if let Some(record) = volume.checkpoint(&mut findings) {
        report.unmounted = record.unmounted;
        let tree = tree::read(&volume, &record, &mut findings, progress)?;
        if tree.complete {
            check_tree(&volume, &record, tree, options, &mut findings, &mut report, progress)?;
        } else {
            findings.push(Finding::TreeIncomplete);
        }
    }
    report.findings = findings;
    Ok(report)
}

fn check_tree(
    volume: &Volume<'_>,
    record: &CheckpointRecord,
    tree: Tree,
    options: &Options,
    findings: &mut Findings,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), FsckError> {
    let Tree { mut items, nodes, .. } = tree;
    let table = Usage::read(volume, &items, findings);
    usage::check(volume, record, &table, &items, &nodes, findings);
    let rolled = roll_forward(volume, record, &table, &mut items, findings, progress)?;
    report.rolled_chunks = rolled.chunks;

    let hash_key = volume.superblock.hash_key;
    let namespace = Namespace::read(&items, findings);
    let population = namespace.check(&items, hash_key, rolled.next_ino, findings);
    (report.files, report.directories) = (population.files, population.directories);
    content::check(&items, &namespace, hash_key, findings);

    let mappings = Mappings::collect(volume, &items, &nodes, findings);
    report.used_bytes = mappings.len() * BLOCK_SIZE as u64;
    mappings.check_summaries(volume, findings, progress)?;
    if options.data {
        mappings.check_data(volume, findings, progress)?;
    }
    let inos: HashSet<u64> = findings.kept().iter().filter_map(Finding::ino).collect();
    report.paths = namespace.paths(&inos);
    Ok(())
}
