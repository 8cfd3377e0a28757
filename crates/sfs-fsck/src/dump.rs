//! A look inside: one structure of a volume, field by field.
//!
//! Owns: which fields there are, under the names of FORMAT.md.
//! Promises: shows what is there, sound or not, as far as it decodes.
//! Never: judges.

mod item;

use serde_json::{Value, json};
use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, ChunkSummary, DeltaForm, NodeHeader, NodePointer,
    ROOT_INO, Remembered, SUPERBLOCK_ADDRESS, SummaryEntry, Superblock, UsageEntry,
};
use sfs_device::{BLOCK_SIZE, Block, Device};

use crate::namespace::find_entry;
use crate::node::{self, Content};
use crate::origin::Origin;
use crate::roll_forward::roll_forward;
use crate::scan::Chunks;
use crate::usage::Usage;
use crate::view::View;
use crate::volume::Volume;
use crate::walk::Keys;
use crate::{Findings, FsckError, log, remembered};

/// What to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
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
    /// The same, by a path from the root.
    Path(Vec<u8>),
}

/// The structure `subject` of the volume on `device`.
///
/// # Errors
///
/// As those of [`crate::check`], and [`FsckError::NotThere`].
pub fn dump(device: &dyn Device, subject: &Subject) -> Result<Value, FsckError> {
    let volume = Volume::open(device, &mut Findings::default())?;
    match subject {
        Subject::Superblock => superblocks(&volume),
        Subject::Checkpoints => checkpoints(&volume),
        Subject::Segment(segment) => show_segment(&volume, *segment),
        Subject::Node(address) => show_node(&volume, *address),
        Subject::Inode(ino) => show_inode(&present(&volume)?.0, *ino),
        Subject::Path(path) => {
            let (view, _) = present(&volume)?;
            let ino = resolve(&view, path)?;
            show_inode(&view, ino)
        }
    }
}

fn superblocks(volume: &Volume<'_>) -> Result<Value, FsckError> {
    let show = |at: u64| -> Result<Value, FsckError> {
        let block = read(volume, at)?;
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
        "created": item::time(superblock.created),
        "failure": superblock.failure.map(remembered::failure_to_json),
    })
}

fn checkpoints(volume: &Volume<'_>) -> Result<Value, FsckError> {
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
    let met = remembered::to_json(&Remembered::of(superblock, record));
    let head = |head: &sfs_core::format::HeadRecord| json!({ "head": head.head, "segment": head.segment, "next_block": head.next_block });
    let policy = |policy: &sfs_core::format::PolicyRecord| json!({ "name": policy.name, "state_len": policy.state.len() });
    let extension = |record: &sfs_core::format::Extension| json!({ "tag": record.tag, "class": record.class.name(), "len": record.bytes.len() });
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
        "errors": met["errors"],
        "extensions": record.extensions.iter().map(extension).collect::<Vec<_>>(),
    })
}

fn show_segment(volume: &Volume<'_>, segment: u32) -> Result<Value, FsckError> {
    let layout = volume.layout();
    if segment >= layout.segment_count {
        return Err(FsckError::NotThere("segment"));
    }
    let (mut chunks, mut block, mut last) = (Vec::new(), 0, None);
    while let Some(chunk) = log::summary(volume, segment, block) {
        if last >= Some(chunk.header.sequence) {
            break;
        }
        last = Some(chunk.header.sequence);
        chunks.push(show_chunk(volume, &chunk));
        block += chunk.block_count() as u32;
    }
    let usage = present(volume).ok().and_then(|(_, usage)| usage.get(segment).copied());
    Ok(json!({
        "segment": segment,
        "address": layout.segment_address(segment),
        "usage": usage.as_ref().map(show_usage),
        "chunks": chunks,
    }))
}

/// An entry of the usage table, as the checkpoint has it.
pub(crate) fn show_usage(entry: &UsageEntry) -> Value {
    json!({
        "state": entry.state.to_string(),
        "live_blocks": entry.live_blocks,
        "group": entry.head.0,
        "write_count_sum": entry.write_count_sum,
        "modified_sum": entry.modified_sum,
        "opened": entry.opened,
        "sealed": entry.sealed,
        "stamp": entry.stamp,
    })
}

fn show_chunk(volume: &Volume<'_>, chunk: &ChunkSummary) -> Value {
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
        "head": chunk.header.head,
        "end": chunk.header.end,
        "whole": log::is_whole(volume, chunk),
        "tagged": chunk.header.form == DeltaForm::Tagged,
        "delta_len": chunk.delta.len(),
        "entries": (first..).zip(&chunk.entries).map(entry).collect::<Vec<_>>(),
    })
}

fn show_node(volume: &Volume<'_>, address: u64) -> Result<Value, FsckError> {
    if !volume.in_segments(address) {
        return Err(FsckError::NotThere("tree node"));
    }
    let block = read(volume, address)?;
    let checksum = NodeHeader::checksum_of(&block.0);
    let header = NodeHeader::verify(&block.0, volume.id(), NodePointer { address, checksum });
    let decoded =
        header.and_then(|header| Ok((header.level, node::decode(&block.0, header, address)?)));
    let (level, content) = match decoded {
        Ok(decoded) => decoded,
        Err(corruption) => return Ok(json!({ "damaged": corruption.to_string() })),
    };
    let (name, inside): (&str, Vec<Value>) = match content {
        Content::Leaf(items) => {
            ("items", items.iter().map(|(key, value)| item::show(key, value)).collect())
        }
        Content::Inner(children) => ("children", children.iter().map(show_child).collect()),
    };
    Ok(json!({ "address": address, "checksum": hex(checksum), "level": level, name: inside }))
}

fn show_child((key, pointer): &(sfs_core::format::Key, NodePointer)) -> Value {
    json!({
        "key": item::show_key(key),
        "address": pointer.address,
        "checksum": hex(pointer.checksum),
    })
}

/// The volume as a mount would find it: the tree, and the log past it.
fn present<'a>(volume: &'a Volume<'a>) -> Result<(View<'a>, Usage), FsckError> {
    let mut ignored = Findings::default();
    let quiet = &mut |_| std::ops::ControlFlow::Continue(());
    let origin = Origin::find(volume, &mut ignored, quiet)?;
    let origin = origin.ok_or(FsckError::NotThere("checkpoint"))?;
    let mut view = View::new(volume, origin.root);
    let usage = Usage::read(&view, &mut ignored);
    roll_forward(&mut view, &origin.record, &usage, &Chunks::new(), &mut ignored, quiet)?;
    Ok((view, usage))
}

fn resolve(view: &View<'_>, path: &[u8]) -> Result<u64, FsckError> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let mut names = names.filter(|name| *name != b".");
    names.try_fold(ROOT_INO, |parent, name| {
        let found = find_entry(view, parent, name);
        found.map(|(ino, _)| ino).ok_or(FsckError::NotThere("path"))
    })
}

fn show_inode(view: &View<'_>, ino: u64) -> Result<Value, FsckError> {
    let mut items = Vec::new();
    view.each(Keys::of(ino), |key, value| items.push(item::show(key, value)));
    match items.is_empty() {
        true => Err(FsckError::NotThere("inode")),
        false => Ok(json!({ "ino": ino, "items": items })),
    }
}

fn read(volume: &Volume<'_>, address: u64) -> Result<Block, FsckError> {
    let mut block = [Block([0; BLOCK_SIZE])];
    volume.device.read(address, &mut block)?;
    let [block] = block;
    Ok(block)
}

pub(crate) fn hex(checksum: u32) -> String {
    format!("{checksum:#010x}")
}

/// `value` in words: a line for each field, indented below what it belongs to.
pub fn in_words(value: &Value) -> String {
    let mut text = String::new();
    write_words(value, 0, &mut text);
    text
}

fn write_words(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match is_short(value) {
                    true => text.push_str(&format!("{indent}{name}: {}\n", short(value))),
                    false => {
                        text.push_str(&format!("{indent}{name}:\n"));
                        write_words(value, depth + 1, text);
                    }
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                text.push_str(&format!("{indent}- {}\n", one_line(value)));
            }
        }
        other => text.push_str(&format!("{indent}{}\n", short(other))),
    }
}

fn is_short(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(values) => values.iter().all(|value| !value.is_object() && !value.is_array()),
        _ => true,
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Array(values) => values.iter().map(short).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// A whole value in one line.
fn one_line(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name} {}", one_line(value));
            fields.iter().map(field).collect::<Vec<_>>().join(", ")
        }
        Value::Array(values) if !is_short(value) => {
            let values: Vec<String> = values.iter().map(one_line).collect();
            format!("[{}]", values.join("; "))
        }
        other => short(other),
    }
}
