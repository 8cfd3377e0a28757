//! The errors that a volume remembers, and forgetting them.
//!
//! Owns: when they are forgotten, and how they are shown.
//! Promises: what a check could not judge, as errors of data that it did not read, is kept. A crash leaves
//! the checkpoint that was there, or the same one without the errors.
//! Never: forgets anything of a volume on which something is wrong.

use serde_json::{Value, json};
use sfs_core::format::{CheckpointRecord, ErrorCount, ErrorKind, Failure, Occurrence, Remembered};
use sfs_device::{BLOCK_SIZE, Block, Device, Stream};

use crate::rewrite::change_superblock;
use crate::volume::Volume;
use crate::{Findings, FsckError};

/// Forgets what a check has disproved that found nothing wrong on `device`, and that has read all data or
/// not. Gives what is left.
pub(crate) fn forget(device: &dyn Device, data: bool) -> Result<Remembered, FsckError> {
    let volume = Volume::open(device, &mut Findings::default())?;
    let Some(record) = volume.checkpoint(&mut Findings::default()) else {
        return Ok(Remembered::default());
    };
    let superblock = &volume.superblock;
    let remembered = Remembered::of(superblock, &record);
    let left = remembered.after_check(data);
    let is_foreign = superblock.write_incompatibility().is_some()
        || record.extensions.incompatibility(true).is_some();
    if is_foreign || left == remembered {
        return Ok(remembered);
    }
    let mut record = CheckpointRecord { number: record.number + 1, ..record };
    if !record.has_sound_counts() {
        return Ok(remembered);
    }
    record.extensions = record.extensions.repeated();
    left.errors.put_into(&mut record.extensions);
    write_record(&volume, &record)?;
    if remembered.failure.is_some() {
        change_superblock(&volume, |superblock| superblock.failure = None)?;
    }
    Ok(left)
}

/// Writes a checkpoint to its slot, durably. The newest one is in the other.
fn write_record(volume: &Volume<'_>, record: &CheckpointRecord) -> Result<(), FsckError> {
    let at = volume.layout().slots[(record.number % 2) as usize];
    let bytes = record.encode(volume.id(), at);
    let block = |bytes: &[u8]| Block(bytes.try_into().expect("a block's bytes"));
    let blocks: Vec<Block> = bytes.chunks_exact(BLOCK_SIZE).map(block).collect();
    volume.device.write(at, &[&blocks], Stream::default())?;
    Ok(volume.device.flush()?)
}

/// A line for each kind of error, and for the one that ended writing.
pub fn lines(remembered: &Remembered) -> Vec<String> {
    let Remembered { errors, failure, is_damaged } = remembered;
    let mut lines: Vec<String> = errors.iter().map(|count| format!("met: {count}")).collect();
    lines.extend(failure.map(|failure| format!("ended writing: {failure}")));
    if *is_damaged {
        lines.push("the record of the errors that were met makes no sense".to_owned());
    }
    lines
}

/// The errors as one JSON object.
pub fn to_json(remembered: &Remembered) -> Value {
    let errors: Vec<Value> = remembered.errors.iter().map(count_to_json).collect();
    json!({
        "errors": errors,
        "failure": remembered.failure.map(failure_to_json),
        "damaged": remembered.is_damaged,
    })
}

fn count_to_json(count: &ErrorCount) -> Value {
    let show = |Occurrence { secs, at }| json!({ "secs": secs, "at": at });
    let ErrorCount { kind, count, first, last } = *count;
    json!({ "kind": name(kind), "count": count, "first": show(first), "last": show(last) })
}

pub(crate) fn failure_to_json(failure: Failure) -> Value {
    json!({ "kind": name(failure.kind), "at": failure.at, "secs": failure.secs })
}

/// The name of a kind, or the number of one that a newer program knows.
fn name(kind: ErrorKind) -> String {
    kind.name().map_or_else(|| kind.code().to_string(), str::to_owned)
}
