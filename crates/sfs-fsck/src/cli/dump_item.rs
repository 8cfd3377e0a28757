//! Items of the tree as JSON. An item that does not decode is shown by its length.

use serde_json::{Value, json};
use sfs_core::format::{
    Inode, InodeFlags, ItemKind, Key, Mapping, RUN_BLOCKS, Reservation, Timestamp, Tolerance,
    USAGE_PER_ITEM, UsageEntry,
};

use crate::read::dirent::Dirent;
use crate::read::mapping::decode_run;

/// Returns a key as text: `inode 16, dirent 0x1f00`.
pub(crate) fn key_to_text(key: &Key) -> String {
    let Key { ino, kind, offset } = *key;
    let name = match ItemKind::decode(kind) {
        Some(ItemKind::Inode) => "attributes",
        Some(ItemKind::Xattr) => "xattr",
        Some(ItemKind::Inline) => "inline",
        Some(ItemKind::Mapping) => "mapping",
        Some(ItemKind::Dirent) => "dirent",
        Some(ItemKind::Orphan) => "orphan",
        Some(ItemKind::Usage) => "usage",
        Some(ItemKind::Reservation) => "reservation",
        None => return format!("inode {ino}, kind {kind}, {offset:#x}"),
    };
    format!("inode {ino}, {name} {offset:#x}")
}

/// Returns an item as a JSON object.
pub(crate) fn item_to_json(key: &Key, value: &[u8]) -> Value {
    let content = ItemKind::decode(key.kind).and_then(|kind| decode(kind, key, value));
    let content = content.unwrap_or_else(|| json!({ "undecodable_len": value.len() }));
    json!({ "key": key_to_text(key), "value": content })
}

fn decode(kind: ItemKind, key: &Key, value: &[u8]) -> Option<Value> {
    Some(match kind {
        ItemKind::Inode => {
            show_inode(&Inode::decode(value, key.ino, Tolerance::Newer).ok()?, &value[Inode::LEN..])
        }
        ItemKind::Xattr if key.offset & 0xffff == 0 => {
            let name = value.get(6..6 + usize::from(*value.first()?))?;
            let len = u32::from_le_bytes(value.get(2..6)?.try_into().ok()?);
            json!({ "name": name.escape_ascii().to_string(), "value_len": len })
        }
        ItemKind::Xattr => json!({ "part": key.offset & 0xffff, "len": value.len() }),
        ItemKind::Inline => json!({ "part": key.offset, "len": value.len() }),
        ItemKind::Mapping => show_run(key, value)?,
        ItemKind::Dirent => {
            let entry = Dirent::decode(value)?;
            let name = entry.name.escape_ascii().to_string();
            json!({ "name": name, "ino": entry.target, "kind": format!("{:?}", entry.kind) })
        }
        ItemKind::Orphan => {
            let first = u64::from_le_bytes(value.try_into().ok()?);
            json!({ "ino": key.offset, "cut_from_block": first })
        }
        ItemKind::Usage => show_table(key, value)?,
        ItemKind::Reservation => {
            let range = Reservation::decode(key, value).ok()?;
            json!({ "first_block": range.first, "last_block": range.last })
        }
    })
}

fn show_inode(inode: &Inode, appended: &[u8]) -> Value {
    json!({
        "kind": format!("{:?}", inode.kind()),
        "mode": format!("{:o}", inode.mode & 0o7777),
        "links": inode.links,
        "uid": inode.uid,
        "gid": inode.gid,
        "rdev": inode.rdev,
        "flags": inode.flags.bits(),
        "inline": inode.flags.contains(InodeFlags::INLINE),
        "xattrs": inode.flags.contains(InodeFlags::XATTRS),
        "size": inode.size,
        "blocks": inode.blocks,
        "parent": inode.parent,
        "atime": time_to_text(inode.atime),
        "mtime": time_to_text(inode.mtime),
        "ctime": time_to_text(inode.ctime),
        "btime": time_to_text(inode.btime),
        "write_count": inode.write_count,
        "modified": inode.modified,
        "appended": hex_bytes(appended),
    })
}

/// Returns bytes of an unknown meaning in hexadecimal.
fn hex_bytes(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn show_run(key: &Key, value: &[u8]) -> Option<Value> {
    let run = decode_run(key, value, Tolerance::Exact).ok()?;
    let block = |(block, mapping): (u32, Mapping)| {
        json!({
            "block": block, "address": mapping.address, "checksum": mapping.checksum.map(hex),
            "writes": mapping.history.write_count(), "modified": mapping.history.modified,
        })
    };
    let mut shown: Vec<Value> = run.iter(key.offset as u32 * RUN_BLOCKS).map(block).collect();
    if !run.records().is_empty() {
        shown.push(json!({ "records": hex_bytes(run.records()) }));
    }
    Some(shown.into())
}

fn show_table(key: &Key, value: &[u8]) -> Option<Value> {
    let first = u32::try_from(key.offset.checked_mul(USAGE_PER_ITEM.into())?).ok()?;
    let entries = UsageEntry::decode_item(value, first).ok()?;
    let show = |(segment, entry): (u32, &UsageEntry)| {
        let mut shown = usage_to_json(entry);
        shown["segment"] = json!(segment);
        shown
    };
    Some((first..).zip(&entries).map(show).collect())
}

/// Returns a time as seconds since 1970 with nine decimals.
pub(crate) fn time_to_text(time: Timestamp) -> String {
    format!("{}.{:09}", time.secs, time.nanos)
}

/// Returns an entry of the usage table as a JSON object.
pub(crate) fn usage_to_json(entry: &UsageEntry) -> Value {
    json!({
        "state": format!("{:?}", entry.state),
        "live_blocks": entry.live_blocks,
        "group": entry.head.0,
        "write_count_sum": entry.write_count_sum,
        "modified_sum": entry.modified_sum,
        "opened": entry.opened,
        "sealed": entry.sealed,
        "stamp": entry.stamp,
        "erases": entry.erases,
    })
}

/// Returns a checksum in hexadecimal.
pub(crate) fn hex(checksum: u32) -> String {
    format!("{checksum:#010x}")
}
