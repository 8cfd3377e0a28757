//! Forged trees: nodes with valid checksums and arbitrary content.

use std::collections::HashMap;

use proptest::prelude::*;
use sfs_core::format::{
    Corruption, CorruptionKind, ItemKind, Key, Location, NodeHeader, NodePointer, Structure,
    Tolerance,
};
use sfs_core::tree::{NodeNotCached, Tree, VerifiedNode};
use sfs_device::{BLOCK_SIZE, Block};

const VOLUME: u64 = 7;
const CHECKPOINT: u64 = 1;
const SLOT_LEN: usize = Key::LEN + 4;
const ENTRY_LEN: usize = Key::LEN + NodePointer::LEN;

type Blocks = HashMap<u64, Box<Block>>;

fn key(n: u64) -> Key {
    Key::new(n, ItemKind::Mapping, n)
}

/// One modification of a node; `nth` selects the node.
#[derive(Clone, Debug)]
struct Forgery {
    nth: usize,
    act: Act,
}

#[derive(Clone, Debug)]
enum Act {
    /// Other bytes among the items.
    Bytes { at: usize, bytes: Vec<u8> },
    /// Another number of items.
    Count { count: u16 },
    /// Another level.
    Level { level: u8 },
    /// Another key for one item.
    Rename { item: usize, n: u64 },
    /// All keys moved, still in order.
    Shift { by: u64 },
    /// Two entries for one child, or two items with one value.
    Alias { from: usize, to: usize },
    /// No items, which is invalid for a node below another one.
    Empty,
}

impl Act {
    fn spoil(&self, bytes: &mut [u8; BLOCK_SIZE], header: &mut NodeHeader) {
        let item_len = if header.level == 0 { SLOT_LEN } else { ENTRY_LEN };
        let count = usize::from(header.item_count);
        let start = |item: usize| NodeHeader::LEN + item % count * item_len;
        match self {
            Self::Bytes { at, bytes: new } => {
                let at = NodeHeader::LEN + at % (BLOCK_SIZE - NodeHeader::LEN - new.len());
                bytes[at..at + new.len()].copy_from_slice(new);
            }
            Self::Count { count } => header.item_count = *count,
            Self::Level { level } => header.level = *level,
            Self::Rename { item, n } => {
                bytes[start(*item)..][..Key::LEN].copy_from_slice(&key(*n).encode());
            }
            Self::Shift { by } => {
                for ino in (0..count).map(start) {
                    let old = u64::from_le_bytes(bytes[ino..ino + 8].try_into().unwrap());
                    bytes[ino..ino + 8].copy_from_slice(&old.wrapping_add(*by).to_le_bytes());
                }
            }
            Self::Alias { from, to } => {
                let from = start(*from) + Key::LEN;
                let to = start(*to) + Key::LEN;
                bytes.copy_within(from..from + item_len - Key::LEN, to);
            }
            Self::Empty => header.item_count = 0,
        }
    }
}

fn any_forgery() -> impl Strategy<Value = Forgery> {
    let small = || any::<usize>();
    let act = prop_oneof![
        4 => (small(), prop::collection::vec(any::<u8>(), 1..24))
            .prop_map(|(at, bytes)| Act::Bytes { at, bytes }),
        1 => (0..300u16).prop_map(|count| Act::Count { count }),
        1 => any::<u8>().prop_map(|level| Act::Level { level: level % 40 }),
        2 => (small(), 0..40_000u64).prop_map(|(item, n)| Act::Rename { item, n }),
        3 => (0..80_000u64).prop_map(|by| Act::Shift { by: by.wrapping_sub(40_000) }),
        3 => (small(), small()).prop_map(|(from, to)| Act::Alias { from, to }),
        1 => Just(Act::Empty),
    ];
    // Inner nodes are few, so half of the forgeries are for them.
    let nth =
        prop_oneof![(0..1_000_000usize).prop_map(|n| n * 2), (0..8usize).prop_map(|n| n * 2 + 1)];
    (nth, act).prop_map(|(nth, act)| Forgery { nth, act })
}

/// Returns a sound tree of three levels.
fn sound_tree() -> (Blocks, NodeNotCached) {
    let mut tree = Tree::new();
    for n in 0..7000 {
        tree.put(&key(n * 5 % 35_000), &[n as u8; 60]).unwrap();
    }
    let mut end = 100;
    let written = tree.write_out(VOLUME, CHECKPOINT, || {
        end += 1;
        end
    });
    assert_eq!(written.level, 2);
    let owned = |(pointer, block): (NodePointer, Block)| (pointer.address, Box::new(block));
    let blocks = written.pointers.into_iter().zip(written.blocks).map(owned).collect();
    (blocks, NodeNotCached { pointer: written.root, level: written.level, keys: None })
}

/// Modifies the nodes at and below `missing`, children first, and seals them again.
fn forge(blocks: &mut Blocks, missing: NodeNotCached, forgeries: &[Forgery]) -> NodeNotCached {
    let address = missing.pointer.address;
    let node =
        VerifiedNode::decode(&*blocks[&address], VOLUME, &missing, Tolerance::Exact).unwrap();
    let mut header = NodeHeader::verify(&blocks[&address].0, VOLUME, missing.pointer).unwrap();
    for (index, child) in node.children().enumerate() {
        let child = forge(blocks, child, forgeries);
        let at = NodeHeader::LEN + index * ENTRY_LEN + Key::LEN;
        let bytes = &mut blocks.get_mut(&address).unwrap().0;
        bytes[at..at + NodePointer::LEN].copy_from_slice(&child.pointer.encode());
    }
    let nodes_count = blocks.len();
    let bytes = &mut blocks.get_mut(&address).unwrap().0;
    let mut spoilt = false;
    for forgery in forgeries {
        let is_inner = forgery.nth % 2 == 1;
        // The few inner nodes are written last.
        let nth = match is_inner {
            true => nodes_count - 1 - forgery.nth / 2 % 4,
            false => forgery.nth / 2 % nodes_count,
        };
        if address == 101 + nth as u64 && !spoilt {
            forgery.act.spoil(bytes, &mut header);
            spoilt = true;
        }
    }
    let checksum = header.seal(bytes, VOLUME, address, CHECKPOINT);
    NodeNotCached { pointer: NodePointer { address, checksum }, ..missing }
}

/// Repeats `act`, and loads missing nodes, until it succeeds or a node is refused.
fn run<T>(
    tree: &mut Tree,
    blocks: &Blocks,
    act: impl Fn(&mut Tree) -> Result<T, NodeNotCached>,
) -> Result<T, Corruption> {
    for _ in 0..20 {
        let missing = match act(tree) {
            Ok(result) => return Ok(result),
            Err(missing) => missing,
        };
        let dangling = Block([0; BLOCK_SIZE]);
        let block = blocks.get(&missing.pointer.address).map_or(&dangling, |block| block);
        let node = VerifiedNode::decode(block, VOLUME, &missing, Tolerance::Exact)?;
        tree.insert(&missing, node);
    }
    panic!("twenty nodes are not enough for one look into a tree of three levels");
}

/// Returns the first item from `n` on and the last item before `n`.
fn search_tree(tree: &mut Tree, blocks: &Blocks, n: u64) -> Vec<(Key, Vec<u8>)> {
    let key = key(n);
    let owned = |item: Option<(Key, &[u8])>| item.map(|(key, value)| (key, value.to_vec()));
    let above = run(tree, blocks, |tree| Ok(owned(tree.first_from(&key)?))).ok().flatten();
    let below = run(tree, blocks, |tree| Ok(owned(tree.last_before(&key)?))).ok().flatten();
    assert!(above.as_ref().is_none_or(|(found, _)| *found >= key));
    assert!(below.as_ref().is_none_or(|(found, _)| *found < key));
    above.into_iter().chain(below).collect()
}

/// Checks that each item found by a search can be read by its key. Otherwise a loop of searches and
/// removals would not end.
fn check_found_items(tree: &mut Tree, blocks: &Blocks, n: u64) {
    for (found, value) in search_tree(tree, blocks, n) {
        let got = run(tree, blocks, |tree| Ok(tree.get(&found)?.map(<[u8]>::to_vec)));
        assert_eq!(got, Ok(Some(value)), "{found:?}");
    }
    let _ = run(tree, blocks, |tree| {
        let mut last = None;
        for item in tree.range(key(n)..key(n + 100)).take(200) {
            let (found, value) = item?;
            assert!(last.replace(found).is_none_or(|last| last < found));
            assert_eq!(tree.get(&found)?, Some(value), "{found:?}");
        }
        Ok(())
    });
}

/// Calls every operation of the tree around `n`.
fn use_tree(tree: &mut Tree, blocks: &Blocks, n: u64, len: usize) {
    let key = key(n);
    let _ = run(tree, blocks, |tree| Ok(tree.get(&key)?.map(<[u8]>::len)));
    search_tree(tree, blocks, n);
    let _ = run(tree, blocks, |tree| Ok(tree.get_mut(&key)?.map(|value| value.fill(1))));
    match n % 3 {
        0 => drop(run(tree, blocks, |tree| tree.remove(&key))),
        1 => drop(run(tree, blocks, |tree| tree.put(&key, &vec![2; len]))),
        _ => {}
    }
}

/// Relocates every node, as the cleaner does.
fn relocate_all(tree: &mut Tree, blocks: &Blocks) {
    for (address, block) in blocks {
        let pointer =
            NodePointer { address: *address, checksum: NodeHeader::checksum_of(&block.0) };
        let header = NodeHeader::verify(&block.0, VOLUME, pointer).expect("a sound header");
        let missing = NodeNotCached { pointer, level: header.level, keys: None };
        if let Ok(node) = VerifiedNode::decode(&**block, VOLUME, &missing, Tolerance::Exact) {
            let _ = run(tree, blocks, |tree| tree.relocate_node(&node, *address));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, cases: 128, ..ProptestConfig::default()
    })]

    #[test]
    fn forged_nodes_never_panic(
        forgeries in prop::collection::vec(any_forgery(), 1..12),
        uses in prop::collection::vec((0..40_000u64, 0..=1280usize), 1..60),
        run_start in 0..40_000u64,
        budget in 0..60usize,
    ) {
        let (mut blocks, root) = sound_tree();
        let root = forge(&mut blocks, root, &forgeries);
        let mut tree = Tree::open(root.pointer, root.level);
        let mut end = 1_000_000;
        uses.iter().for_each(|(n, _)| check_found_items(&mut tree, &blocks, *n));
        (run_start..run_start + 1500).step_by(30).for_each(|n| check_found_items(&mut tree, &blocks, n));
        for (n, len) in &uses {
            use_tree(&mut tree, &blocks, *n, *len);
        }
        (run_start..run_start + 1500).step_by(3).for_each(|n| use_tree(&mut tree, &blocks, n, 100));
        tree.prune();
        relocate_all(&mut tree, &blocks);
        tree.evict(budget);
        let written = tree.write_out(VOLUME, 2, || { end += 1; end });
        for (pointer, block) in written.pointers.into_iter().zip(written.blocks) {
            blocks.insert(pointer.address, Box::new(block));
        }
        tree.evict(budget);
        for (n, len) in &uses {
            use_tree(&mut tree, &blocks, n + 1, *len);
        }
        (0..35_000).step_by(30).for_each(|n| use_tree(&mut tree, &blocks, n, 0));
        tree.prune();
        tree.write_out(VOLUME, 3, || { end += 1; end });
    }

    #[test]
    fn any_bytes_decode_or_are_refused(
        mut bytes in prop::collection::vec(any::<u8>(), BLOCK_SIZE),
        level in 0..3u8,
        item_count in 0..4u16,
    ) {
        let bytes: &mut [u8; BLOCK_SIZE] = bytes.as_mut_slice().try_into().unwrap();
        let checksum = NodeHeader { level, item_count }.seal(bytes, VOLUME, 9, CHECKPOINT);
        let missing = NodeNotCached { pointer: NodePointer { address: 9, checksum }, level, keys: None };
        let _ = VerifiedNode::decode(Block(*bytes), VOLUME, &missing, Tolerance::Exact);
    }
}

#[test]
fn a_child_of_another_level_is_refused() {
    let (blocks, root) = sound_tree();
    let node =
        VerifiedNode::decode(&*blocks[&root.pointer.address], VOLUME, &root, Tolerance::Exact)
            .unwrap();
    let inner = node.children().next().unwrap();
    // The root pointer of this tree has the address of a node of level 1, but level 2. The pointer
    // must not find that node.
    let mut tree = Tree::open(inner.pointer, 2);
    let wanted = NodeNotCached { pointer: inner.pointer, level: 2, keys: None };
    let sound =
        VerifiedNode::decode(&*blocks[&inner.pointer.address], VOLUME, &inner, Tolerance::Exact)
            .unwrap();
    tree.insert(&inner, sound);
    assert_eq!(tree.get(&key(0)), Err(wanted));
    let refused =
        VerifiedNode::decode(&*blocks[&inner.pointer.address], VOLUME, &wanted, Tolerance::Exact);
    let kind = refused.err().map(|corruption| corruption.kind);
    assert_eq!(kind, Some(CorruptionKind::Value));
}

#[test]
fn a_root_where_no_device_has_blocks_stays_missing() {
    let pointer = NodePointer { address: u64::MAX, checksum: 0 };
    let mut tree = Tree::open(pointer, 0);
    let missing = NodeNotCached { pointer, level: 0, keys: None };
    assert_eq!(tree.put(&key(1), b"x"), Err(missing));
    let mut bytes = [0; BLOCK_SIZE];
    let header = NodeHeader { level: 0, item_count: 0 };
    let checksum = header.seal(&mut bytes, VOLUME, u64::MAX, CHECKPOINT);
    let missing =
        NodeNotCached { pointer: NodePointer { checksum, ..pointer }, level: 0, keys: None };
    let refused = VerifiedNode::decode(Block(bytes), VOLUME, &missing, Tolerance::Exact);
    assert_eq!(refused.err().map(|corruption| corruption.kind), Some(CorruptionKind::Address));
    assert_eq!(tree.write_out(VOLUME, 2, || panic!("nothing is dirty")).root, pointer);
}

/// Returns the error of decoding a node of `level` with `count` items, whose bytes are `items`.
fn refusal(level: u8, count: u16, items: &[Vec<u8>]) -> Option<CorruptionKind> {
    let mut bytes = [0; BLOCK_SIZE];
    let items = items.concat();
    bytes[NodeHeader::LEN..NodeHeader::LEN + items.len()].copy_from_slice(&items);
    let header = NodeHeader { level, item_count: count };
    let checksum = header.seal(&mut bytes, VOLUME, 9, CHECKPOINT);
    let missing =
        NodeNotCached { pointer: NodePointer { address: 9, checksum }, level, keys: None };
    let refused = VerifiedNode::decode(Block(bytes), VOLUME, &missing, Tolerance::Exact).err()?;
    assert_eq!((refused.location, refused.structure), (Location::Block(9), Structure::Node));
    Some(refused.kind)
}

fn slot(key: Key, offset: u16, len: u16) -> Vec<u8> {
    [&key.encode()[..], &offset.to_le_bytes(), &len.to_le_bytes()].concat()
}

fn entry(key: Key, address: u64) -> Vec<u8> {
    [&key.encode()[..], &NodePointer { address, checksum: 1 }.encode()].concat()
}

/// Kinds of a later program are accepted with `Tolerance::Newer`; 0 and 255 are bounds of searches, not kinds.
#[test]
fn kinds_of_a_later_program_are_accepted_if_tolerated() {
    let decode = |kind, tolerance| {
        let mut bytes = [0; BLOCK_SIZE];
        let item = slot(Key { kind, ..key(1) }, 4096, 0);
        bytes[NodeHeader::LEN..NodeHeader::LEN + item.len()].copy_from_slice(&item);
        let checksum = NodeHeader { level: 0, item_count: 1 }.seal(&mut bytes, VOLUME, 99, 1);
        let missing =
            NodeNotCached { pointer: NodePointer { address: 99, checksum }, level: 0, keys: None };
        VerifiedNode::decode(Block(bytes), VOLUME, &missing, tolerance).is_ok()
    };
    for kind in 0..=255 {
        assert_eq!(decode(kind, Tolerance::Exact), (1..9).contains(&kind), "kind {kind}");
        assert_eq!(decode(kind, Tolerance::Newer), (1..255).contains(&kind), "kind {kind}");
    }
}

#[test]
fn each_flaw_of_a_leaf_has_its_own_error() {
    let of = |count, items: &[Vec<u8>]| refusal(0, count, items);
    let unknown = Key { kind: 9, ..key(1) };
    assert_eq!(of(0, &[]), None);
    assert_eq!(of(2, &[slot(key(1), 4000, 96), slot(key(2), 3900, 100)]), None);
    assert_eq!(of(2, &[slot(key(1), 4096, 0), slot(key(2), 2816, 1280)]), None);
    assert_eq!(of(193, &[]), Some(CorruptionKind::Length));
    assert_eq!(of(1, &[slot(unknown, 4096, 0)]), Some(CorruptionKind::Value));
    let twice = [slot(key(1), 4096, 0), slot(key(1), 4096, 0)];
    assert_eq!(of(2, &twice), Some(CorruptionKind::Order));
    let falling = [slot(key(2), 4096, 0), slot(key(1), 4096, 0)];
    assert_eq!(of(2, &falling), Some(CorruptionKind::Order));
    assert_eq!(of(1, &[slot(key(1), 4000, 97)]), Some(CorruptionKind::Length));
    assert_eq!(of(1, &[slot(key(1), 65_535, 1)]), Some(CorruptionKind::Length));
    assert_eq!(of(1, &[slot(key(1), 4097, 0)]), Some(CorruptionKind::Length));
    assert_eq!(of(1, &[slot(key(1), 2000, 1281)]), Some(CorruptionKind::Length));
    assert_eq!(of(1, &[slot(key(1), 85, 1)]), None);
    assert_eq!(of(1, &[slot(key(1), 84, 1)]), Some(CorruptionKind::Length));
    let shared = [slot(key(1), 4000, 50), slot(key(2), 4049, 10)];
    assert_eq!(of(2, &shared), Some(CorruptionKind::Length));
}

#[test]
fn each_flaw_of_an_inner_node_has_its_own_error() {
    assert_eq!(refusal(1, 2, &[entry(key(1), 10), entry(key(2), 11)]), None);
    assert_eq!(refusal(32, 1, &[entry(key(1), 10)]), None);
    assert_eq!(refusal(33, 1, &[entry(key(1), 10)]), Some(CorruptionKind::Value));
    assert_eq!(refusal(1, 0, &[]), Some(CorruptionKind::Length));
    assert_eq!(refusal(1, 140, &[]), Some(CorruptionKind::Length));
    assert_eq!(refusal(1, 1, &[entry(key(1), 0)]), Some(CorruptionKind::Value));
    assert_eq!(refusal(1, 1, &[entry(key(1), 1 << 63)]), Some(CorruptionKind::Value));
    let falling = [entry(key(2), 10), entry(key(1), 11)];
    assert_eq!(refusal(1, 2, &falling), Some(CorruptionKind::Order));
}
