//! Every decoder on hostile bytes: no decoder panics, and decoded structures are encoded to the same bytes.
//!
//! `PROPTEST_CASES=1000000 cargo test --release -p sfs-core --test decoders` is the long run.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sfs_core::format::{
    AccessList, CHECKPOINT_SLOT_BLOCKS, Change, CheckpointRecord, ChunkSummary, DeltaForm, Inode,
    ItemKind, Key, Mapping, MappingRun, NodeHeader, NodePointer, Superblock, Tolerance, UsageEntry,
    VALUE_LEN_MAX, codec, summary_blocks,
};
use sfs_core::tree::{NodeNotCached, VerifiedNode};
use sfs_device::{BLOCK_SIZE, Block};

const VOLUME: u64 = 7;
const AT: u64 = 16;

/// Returns a strategy for bytes that are often edge values of counts and lengths.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0u8), 1 => Just(1), 1 => Just(0x7f), 1 => Just(0xff), 3 => any::<u8>()]
}

fn bytes(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(byte(), len)
}

/// Returns a block with `head` at its start and `body` from byte `at` on.
fn block(head: &[u8], at: usize, body: &[u8]) -> [u8; BLOCK_SIZE] {
    let mut block = [0; BLOCK_SIZE];
    block[..head.len()].copy_from_slice(head);
    let end = BLOCK_SIZE.min(at + body.len());
    block[at..end].copy_from_slice(&body[..end - at]);
    block
}

fn seal(bytes: &mut [u8], field: usize, from: usize) -> u32 {
    let checksum = crc32c::crc32c(&bytes[from..]);
    bytes[field..field + 4].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

proptest! {
    #[test]
    fn superblocks(body in bytes(172), version in 0..3u8) {
        let mut bytes = block(b"SFS-log\n", 12, &body);
        bytes[12..16].copy_from_slice(&[version, 0, 0, 0]);
        bytes[16..24].fill(0);
        seal(&mut bytes, 8, 12);
        if let Ok(superblock) = Superblock::decode(&bytes, 4) {
            prop_assert_eq!(Superblock::decode(&superblock.encode(), 4), Ok(superblock.clone()));
            let layout = superblock.layout;
            let last = layout.segment_address(layout.segment_count - 1);
            prop_assert!(last + u64::from(layout.segment_blocks) <= layout.slots[1]);
        }
    }

    #[test]
    fn checkpoints(payload in bytes(0..2000), len in any::<Option<u32>>()) {
        let mut bytes = vec![0; CHECKPOINT_SLOT_BLOCKS as usize * BLOCK_SIZE];
        bytes[..4].copy_from_slice(b"SFSp");
        bytes[8..16].copy_from_slice(&VOLUME.to_le_bytes());
        bytes[16..24].copy_from_slice(&AT.to_le_bytes());
        let said = len.unwrap_or(payload.len() as u32);
        bytes[24..28].copy_from_slice(&said.to_le_bytes());
        bytes[32..32 + payload.len()].copy_from_slice(&payload);
        let end = bytes.len().min(32usize.saturating_add(said as usize));
        let checksum = crc32c::crc32c(&bytes[8..end]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(record) = CheckpointRecord::decode(&bytes, VOLUME, AT) {
            let again = record.encode(VOLUME, AT);
            prop_assert_eq!(CheckpointRecord::decode(&again, VOLUME, AT), Ok(record));
        }
    }

    #[test]
    fn summaries(
        body in bytes(0..2 * BLOCK_SIZE),
        entries in prop_oneof![0..200u32, any::<u32>()],
        delta in prop_oneof![0..5000u32, any::<u32>()],
        room in 1..4000u64,
        flags in any::<u8>(),
    ) {
        let mut first = block(b"SFSc", 50, &body);
        first[8..16].copy_from_slice(&VOLUME.to_le_bytes());
        first[24..32].copy_from_slice(&AT.to_le_bytes());
        first[36..40].copy_from_slice(&entries.to_le_bytes());
        first[40..44].copy_from_slice(&delta.to_le_bytes());
        first[49] = 1 + flags % 8;
        let Ok(count) = ChunkSummary::peek(&first, AT, room) else { return Ok(()) };
        prop_assert!(count as u64 + u64::from(entries) <= room);
        let mut bytes = first.to_vec();
        bytes.extend(body.iter().skip(BLOCK_SIZE - 50));
        bytes.resize(count * BLOCK_SIZE, 1);
        for entry in bytes[64..].chunks_exact_mut(24).take(entries as usize) {
            entry[22] = 1 + entry[22] % 2;
        }
        seal(&mut bytes, 4, 8);
        if let Ok(chunk) = ChunkSummary::decode(&bytes, VOLUME, AT) {
            prop_assert_eq!(summary_blocks(chunk.entries.len(), chunk.delta.len()), count);
            prop_assert!(bytes[49] & !3 == 0);
        }
    }

    #[test]
    fn plain_deltas(bytes in bytes(0..3000)) {
        if let Ok(changes) = Change::decode_all(&bytes, DeltaForm::Plain, AT) {
            let mut again = Vec::new();
            changes.iter().for_each(|change| codec::append(change, &mut again));
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn deltas(
        bytes in bytes(0..3000),
        headers in prop::collection::vec((0..8u16, 0..4u8, 0..60u8), 0..50),
    ) {
        // The headers have the lengths of the fields that follow.
        let mut delta = Vec::new();
        let mut rest = &bytes[..];
        for (kind, class, len) in headers {
            let (fields, others) = rest.split_at(rest.len().min(len.into()));
            delta.extend(kind.to_le_bytes());
            delta.extend([class.max(1), 0]);
            delta.extend((fields.len() as u32).to_le_bytes());
            delta.extend(fields);
            rest = others;
        }
        for delta in [&bytes, &delta] {
            if let Ok(changes) = Change::decode_all(delta, DeltaForm::Tagged, AT) {
                let mut again = Vec::new();
                changes.iter().for_each(|change| change.append(&mut again));
                prop_assert!(again.len() <= delta.len());
                prop_assert_eq!(Change::decode_all(&again, DeltaForm::Tagged, AT), Ok(changes));
            }
        }
    }

    #[test]
    fn nodes(body in bytes(0..BLOCK_SIZE - 64), count in 0..300u16, level in 0..40u8) {
        let mut bytes = block(b"", 64, &body);
        let header = NodeHeader { level, item_count: count };
        let checksum = header.seal(&mut bytes, VOLUME, AT, 1);
        let pointer = NodePointer { address: AT, checksum };
        let missing = NodeNotCached { pointer, level, keys: None };
        if let Ok(node) = VerifiedNode::decode(Block(bytes), VOLUME, &missing, Tolerance::Exact) {
            prop_assert_eq!(node.level(), level);
            let keys: Vec<Key> = node.items().map(|(key, _)| key).collect();
            prop_assert!(keys.is_sorted());
            prop_assert_eq!(node.children().count() + keys.len(), usize::from(count));
        }
    }

    #[test]
    fn items(
        bytes in bytes(0..1300),
        ino in any::<u64>(),
        offset in any::<u64>(),
        is_newer in any::<bool>(),
    ) {
        let tolerance = if is_newer { Tolerance::Newer } else { Tolerance::Exact };
        if let Ok(inode) = Inode::decode(&bytes, ino, tolerance) {
            let again = Inode::keep_rest(&inode.encode(), Some(&bytes)).into_owned();
            prop_assert_eq!(Inode::decode(&again, ino, tolerance), Ok(inode));
            prop_assert_eq!(&again[Inode::LEN..], &bytes[Inode::LEN..]);
        }
        let key = Key::new(ino, ItemKind::Mapping, offset);
        check_run(&bytes, &key, tolerance)?;
        if let Ok(entries) = UsageEntry::decode_item(&bytes, 0) {
            let again = UsageEntry::encode_item(&entries);
            prop_assert_eq!(UsageEntry::decode_item(&again, 0), Ok(entries));
        }
        if let Some(bytes) = bytes.first_chunk() {
            prop_assert_eq!(&Key::decode(bytes).encode(), bytes);
        }
    }

    #[test]
    fn access_lists(
        entries in prop::collection::vec(
            (prop::sample::select(vec![1u16, 2, 4, 8, 16, 32, 64]), 0..9u16, 0..4u32), 0..8),
        sorted in any::<bool>(),
        version in 1..4u32,
        cut in 0..12usize,
        mode in any::<u32>(),
    ) {
        let mut entries = entries;
        if sorted {
            entries.sort_by_key(|(tag, ..)| *tag);
        }
        let mut value = version.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            let id = if matches!(tag, 2 | 8) { id } else { u32::MAX };
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value.truncate(value.len() - cut.saturating_sub(8).min(value.len()));
        let Some(mut list) = AccessList::decode(&value) else { return Ok(()) };
        prop_assert_eq!(list.encode(), value);
        let before = list.shown();
        list.restrict(mode);
        prop_assert_eq!(list.shown(), before & mode);
        list.show(mode);
        prop_assert_eq!(list.shown(), mode & 0o777);
        prop_assert_eq!(AccessList::decode(&list.encode()), Some(list));
    }

    #[test]
    fn runs(
        bitmap in any::<u32>(),
        mappings in bytes(512),
        encodings in prop::collection::vec(prop_oneof![9 => 1..3u8, 1 => 0..7u8], 32),
        records in prop::collection::vec((any::<u8>(), 1..3u8, bytes(0..400)), 0..4),
        is_newer in any::<bool>(),
    ) {
        let mut value = bitmap.to_le_bytes().to_vec();
        let count = bitmap.count_ones() as usize;
        value.extend_from_slice(&mappings[..count * 16]);
        for (mapping, encoding) in value[4..].chunks_exact_mut(16).zip(encodings) {
            mapping[5] = encoding;
        }
        let records: BTreeMap<u8, (u8, Vec<u8>)> =
            records.into_iter().map(|(tag, class, bytes)| (tag, (class, bytes))).collect();
        for (tag, (class, bytes)) in records {
            value.extend([tag, class]);
            value.extend((bytes.len() as u16).to_le_bytes());
            value.extend(bytes);
        }
        let tolerance = if is_newer { Tolerance::Newer } else { Tolerance::Exact };
        check_run(&value, &Key::new(17, ItemKind::Mapping, 1), tolerance)?;
        value.pop();
        check_run(&value, &Key::new(17, ItemKind::Mapping, 1), tolerance)?;
    }
}

/// Checks that a decoded run is encoded to an equal run, and that `find` agrees with it for each block.
fn check_run(value: &[u8], key: &Key, tolerance: Tolerance) -> Result<(), TestCaseError> {
    let Ok(run) = MappingRun::decode(value, key, tolerance) else { return Ok(()) };
    let mut again = Vec::new();
    run.encode(&mut again);
    prop_assert_eq!(again.len(), value.len());
    prop_assert!(value.ends_with(run.records()));
    prop_assert_eq!(MappingRun::decode(&again, key, tolerance), Ok(run.clone()));
    for block in 0..40 {
        let found = MappingRun::find(value, key, block, tolerance);
        prop_assert_eq!(found, Ok(run.get(block)));
    }
    let mut full = run.clone();
    let any = run.iter(0).next().map(|(_, mapping)| mapping);
    for block in 0..32 {
        full.set(block, any);
    }
    again.clear();
    full.encode(&mut again);
    prop_assert!(again.len() <= VALUE_LEN_MAX);
    Ok(())
}

/// A read of one block looks at one mapping: damage of another one in the run does not keep it from the block.
#[test]
fn one_mapping_is_found_beside_a_damaged_one() {
    let key = Key::new(17, ItemKind::Mapping, 0);
    let mut run = MappingRun::default();
    let mapping = |address| Mapping { address, checksum: Some(7), ..Mapping::in_place(0) };
    run.set(3, Some(mapping(99)));
    run.set(5, Some(mapping(100)));
    let mut value = Vec::new();
    run.encode(&mut value);
    // The encoding of the second mapping, behind the bitmap and the first one.
    value[4 + 16 + 5] = 0;
    let find = |block| MappingRun::find(&value, &key, block, Tolerance::Exact);
    assert_eq!(find(3), Ok(Some(mapping(99))));
    assert_eq!(find(4), Ok(None));
    assert!(find(5).is_err());
    assert!(MappingRun::decode(&value, &key, Tolerance::Exact).is_err());
}
