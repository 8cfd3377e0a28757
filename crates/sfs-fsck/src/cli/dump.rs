//! One structure of a volume as JSON, field by field under the names of `docs/FORMAT.md`.
//!
//! A damaged structure is shown as far as it decodes.

use serde_json::{Value, json};
use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, ChunkSummary, DeltaForm, Extension, HeadRecord, Key,
    NodeHeader, NodePointer, PolicyRecord, ROOT_INO, Remembered, SUPERBLOCK_ADDRESS, SummaryEntry,
    Superblock, WearBytes, WearLedger,
};
use sfs_device::{Block, Device};

use crate::cli::dump_item::{hex, item_to_json, key_to_text, time_to_text, usage_to_json};
use crate::cli::json::{failure_to_json, remembered_to_json};
use crate::error::FsckError;
use crate::findings::Findings;
use crate::read::chunk;
use crate::read::dirent::find_entry;
use crate::read::key_range::KeyRange;
use crate::read::node::{self, NodeContent};
use crate::read::overlay_tree::OverlayTree;
use crate::read::recovery_point::RecoveryPoint;
use crate::read::roll_forward::roll_forward;
use crate::read::segment_scan::ChunkPositions;
use crate::read::superblock::read_block;
use crate::read::usage::UsageEntries;
use crate::read::volume::VolumeReader;

/// Structure to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpSubject {
    /// Both superblocks.
    Superblock,
    /// Both checkpoint slots.
    Checkpoints,
    /// The chunks of a segment, by its number.
    Segment(u32),
    /// A tree node, by its block address.
    Node(u64),
    /// The items of an inode, the log past the checkpoint included.
    Inode(u64),
    /// The items of an inode, by its path from the root.
    Path(Vec<u8>),
}

/// Returns the structure `subject` of the volume on `device`.
///
/// # Errors
///
/// Errors of [`crate::check()`]; [`FsckError::NotFound`] if the volume has no such structure.
pub fn dump(device: &dyn Device, subject: &DumpSubject) -> Result<Value, FsckError> {
    let volume = VolumeReader::open(device, &mut Findings::default())?;
    match subject {
        DumpSubject::Superblock => superblocks(&volume),
        DumpSubject::Checkpoints => checkpoints(&volume),
        DumpSubject::Segment(segment) => show_segment(&volume, *segment),
        DumpSubject::Node(address) => show_node(&volume, *address),
        DumpSubject::Inode(ino) => show_inode(&open_tree(&volume)?.0, *ino),
        DumpSubject::Path(path) => {
            let (tree, _) = open_tree(&volume)?;
            let ino = resolve(&tree, path)?;
            show_inode(&tree, ino)
        }
    }
}

fn superblocks(volume: &VolumeReader<'_>) -> Result<Value, FsckError> {
    let show = |at: u64| -> Result<Value, FsckError> {
        let block = read_block(volume.device, at)?;
        Ok(match Superblock::decode(&block.0, at) {
            Ok(superblock) => show_superblock(&superblock),
            Err(corruption) => json!({ "damaged": corruption.to_string() }),
        })
    };
    Ok(json!({
        "superblock": show(SUPERBLOCK_ADDRESS)?,
        "backup": show(volume.layout().backup)?,
    }))
}

fn show_superblock(superblock: &Superblock) -> Value {
    let layout = &superblock.layout;
    let uuid: String = superblock.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let features = &superblock.features;
    json!({
        "version": superblock.version,
        "generation": superblock.generation,
        "features": {
            "compatible": format!("{:#x}", features.compatible),
            "read_only_compatible": format!("{:#x}", features.read_only_compatible),
            "incompatible": format!("{:#x}", features.incompatible),
        },
        "hash_key_from_seed": features.has_key_from_seed(),
        "uuid": uuid,
        "label": superblock.label.as_str(),
        "block_count": layout.block_count,
        "segment_first": layout.segment_first,
        "segment_blocks": layout.segment_blocks,
        "segment_count": layout.segment_count,
        "slots": layout.slots,
        "backup": layout.backup,
        "layout": superblock.data_layout.name(),
        "tick_shift": superblock.tick_shift,
        "created": time_to_text(superblock.created),
        "failure": superblock.failure.map(failure_to_json),
    })
}

fn checkpoints(volume: &VolumeReader<'_>) -> Result<Value, FsckError> {
    let mut shown = Vec::new();
    for at in volume.layout().slots {
        let mut blocks = Block::zeroed(CHECKPOINT_SLOT_BLOCKS as usize);
        volume.device.read(at, &mut blocks)?;
        let record = CheckpointRecord::decode(Block::bytes_of(&blocks), volume.id(), at);
        shown.push(match record {
            Ok(record) => show_record(&record, &volume.superblock),
            Err(corruption) => json!({ "damaged": corruption.to_string() }),
        });
    }
    Ok(json!({ "slot 0": shown[0], "slot 1": shown[1] }))
}

fn show_record(record: &CheckpointRecord, superblock: &Superblock) -> Value {
    let remembered = remembered_to_json(&Remembered::of(superblock, record));
    let head = |head: &HeadRecord| json!({ "head": head.head.0, "segment": head.segment, "next_block": head.next_block });
    let policy =
        |policy: &PolicyRecord| json!({ "name": policy.name, "state_len": policy.state.len() });
    let extension = |record: &Extension| json!({ "tag": record.tag, "class": record.class.name(), "len": record.bytes.len() });
    json!({
        "number": record.number,
        "next_sequence": record.next_sequence,
        "previous": hex(record.previous),
        "root": { "address": record.root_address, "checksum": hex(record.root_checksum),
                  "level": record.root_level },
        "next_ino": record.next_ino,
        "heads": record.heads.iter().map(head).collect::<Vec<_>>(),
        "blocks_written": record.blocks_written,
        "policies": record.policies.iter().map(policy).collect::<Vec<_>>(),
        "unmounted": record.unmounted,
        "mount_count": record.mount_count,
        "user_bytes_written": record.user_bytes_written,
        "device_bytes_written": record.device_bytes_written,
        "errors": remembered["errors"],
        "wear": wear_to_json(record),
        "extensions": record.extensions.iter().map(extension).collect::<Vec<_>>(),
    })
}

/// Returns the wear ledger of a checkpoint, without its days and months; null if there is none or it is malformed.
fn wear_to_json(record: &CheckpointRecord) -> Value {
    let Ok(Some(ledger)) = WearLedger::of(&record.extensions) else { return Value::Null };
    let WearBytes { user, cleaning, metadata, defragmentation } = ledger.totals;
    json!({
        "since": ledger.since.to_string(),
        "user_bytes": user,
        "cleaning_bytes": cleaning,
        "metadata_bytes": metadata,
        "defragmentation_bytes": defragmentation,
        "recovered_chunks": ledger.recovered_chunks,
        "days": ledger.days().count(),
        "months": ledger.months().count(),
    })
}

fn show_segment(volume: &VolumeReader<'_>, segment: u32) -> Result<Value, FsckError> {
    let layout = volume.layout();
    if segment >= layout.segment_count {
        return Err(FsckError::NotFound("segment"));
    }
    let (mut chunks, mut block, mut last) = (Vec::new(), 0, None);
    while let Some(chunk) = chunk::read_summary(volume, segment, block) {
        if last >= Some(chunk.header.sequence) {
            break;
        }
        last = Some(chunk.header.sequence);
        chunks.push(show_chunk(volume, &chunk));
        block += chunk.block_count() as u32;
    }
    let usage = open_tree(volume).ok().and_then(|(_, usage)| usage.get(segment).copied());
    Ok(json!({
        "segment": segment,
        "address": layout.segment_address(segment),
        "usage": usage.as_ref().map(usage_to_json),
        "chunks": chunks,
    }))
}

fn show_chunk(volume: &VolumeReader<'_>, chunk: &ChunkSummary) -> Value {
    let first = chunk.header.address + chunk.summary_blocks() as u64;
    let entry = |(address, entry): (u64, &SummaryEntry)| match *entry {
        SummaryEntry::Data { ino, block, checksum, history } => json!({
            "address": address, "ino": ino, "block": block, "checksum": hex(checksum),
            "writes": history.write_count(), "modified": history.modified,
        }),
        SummaryEntry::Node { checksum } => {
            json!({ "address": address, "node": true, "checksum": hex(checksum) })
        }
    };
    json!({
        "address": chunk.header.address,
        "sequence": chunk.header.sequence,
        "previous": hex(chunk.header.previous),
        "checksum": hex(chunk.checksum),
        "time": chunk.header.time,
        "head": chunk.header.head.0,
        "end": chunk.header.end,
        "whole": chunk::is_whole(volume, chunk),
        "tagged": chunk.header.form == DeltaForm::Tagged,
        "delta_len": chunk.delta.len(),
        "entries": (first..).zip(&chunk.entries).map(entry).collect::<Vec<_>>(),
    })
}

fn show_node(volume: &VolumeReader<'_>, address: u64) -> Result<Value, FsckError> {
    if !volume.in_segments(address) {
        return Err(FsckError::NotFound("tree node"));
    }
    let block = read_block(volume.device, address)?;
    let checksum = NodeHeader::checksum_of(&block.0);
    let header = NodeHeader::verify(&block.0, volume.id(), NodePointer { address, checksum });
    let decoded =
        header.and_then(|header| Ok((header.level, node::decode(&block.0, header, address)?)));
    let (level, content) = match decoded {
        Ok(decoded) => decoded,
        Err(corruption) => return Ok(json!({ "damaged": corruption.to_string() })),
    };
    let (name, inside): (&str, Vec<Value>) = match content {
        NodeContent::Leaf(items) => {
            ("items", items.iter().map(|(key, value)| item_to_json(key, value)).collect())
        }
        NodeContent::Inner(children) => ("children", children.iter().map(show_child).collect()),
    };
    Ok(json!({ "address": address, "checksum": hex(checksum), "level": level, name: inside }))
}

fn show_child((key, pointer): &(Key, NodePointer)) -> Value {
    json!({
        "key": key_to_text(key),
        "address": pointer.address,
        "checksum": hex(pointer.checksum),
    })
}

/// Returns the tree with the log past its checkpoint, as a mount would find it, and the usage table.
fn open_tree<'a>(
    volume: &'a VolumeReader<'a>,
) -> Result<(OverlayTree<'a>, UsageEntries), FsckError> {
    let mut ignored = Findings::default();
    let quiet = &mut |_| std::ops::ControlFlow::Continue(());
    let point = RecoveryPoint::find(volume, &mut ignored, quiet)?;
    let point = point.ok_or(FsckError::NotFound("checkpoint"))?;
    let mut tree = OverlayTree::new(volume, point.root);
    let usage = UsageEntries::read(&tree, &point.record, &mut ignored);
    roll_forward(&mut tree, &point.record, &usage, &ChunkPositions::new(), &mut ignored, quiet)?;
    Ok((tree, usage))
}

fn resolve(tree: &OverlayTree<'_>, path: &[u8]) -> Result<u64, FsckError> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let mut names = names.filter(|name| *name != b".");
    names.try_fold(ROOT_INO, |parent, name| {
        let found = find_entry(tree, parent, name);
        found.map(|(ino, _)| ino).ok_or(FsckError::NotFound("path"))
    })
}

fn show_inode(tree: &OverlayTree<'_>, ino: u64) -> Result<Value, FsckError> {
    let mut items = Vec::new();
    tree.each(KeyRange::of_inode(ino), |key, value| items.push(item_to_json(key, value)));
    match items.is_empty() {
        true => Err(FsckError::NotFound("inode")),
        false => Ok(json!({ "ino": ino, "items": items })),
    }
}
