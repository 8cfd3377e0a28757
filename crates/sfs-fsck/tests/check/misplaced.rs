//! Volumes whose entries lead to nodes that do not belong there: what a mount makes of them.

use std::sync::Arc;

use sfs_core::format::{
    Corruption, CorruptionKind, FileKind, History, Inode, ItemKind, Key, Mapping, RUN_BLOCKS,
    Structure, Timestamp,
};
use sfs_core::request::{Caller, VolumeOptions, Work, XattrMode};
use sfs_core::{Error, Volume};
use sfs_fsck::Finding;

use super::findings::errors;
use super::forge::{self, Draft, Forge, GONE};

const NOW: Timestamp = Timestamp { secs: 2_000_000, nanos: 0 };

/// The file that changes are tried on.
const FILE: u64 = 500;

/// A mount of what `forge` makes, which fsck finds damaged.
fn mount(forge: &Forge) -> Volume {
    let image = forge.build();
    let found = errors(&image);
    let is_expected =
        |f: &Finding| matches!(f, Finding::NodeShared { .. } | Finding::NodeRange { .. });
    assert!(found.iter().any(is_expected), "{found:?}");
    let device = Arc::new(image.device.snapshot());
    Volume::open(device, VolumeOptions::default(), NOW).expect("it mounts")
}

/// Takes the items out of the drafts, and makes leaves of two items each of them.
fn small_leaves(nodes: &mut Vec<Draft>) {
    let leaves = nodes.drain(..).filter(|(level, _)| *level == 0);
    let items: Vec<_> = leaves.flat_map(|(_, items)| items).collect();
    nodes.extend(items.chunks(2).map(|items| (0, items.to_vec())));
}

/// Entries that lead to `nodes` from `first` on by their first keys.
fn entries(nodes: &[Draft], first: usize) -> Vec<(Key, Vec<u8>)> {
    let entry = |at: usize| (nodes[at].1[0].0, vec![at as u8]);
    (first..nodes.len()).map(entry).collect()
}

fn inode(ino: u64) -> (Key, Vec<u8>) {
    (Key::inode(ino), forge::file(FileKind::Regular, 0).encode().to_vec())
}

fn with_drafts(change: impl Fn(&mut Vec<Draft>) + 'static) -> Forge {
    let mut forge = Forge::empty();
    forge.on_record = Box::new(|record| record.next_ino = 10_000);
    forge.on_drafts = Box::new(change);
    forge
}

fn set_xattr(volume: &Volume, ino: u64, value: &[u8]) -> sfs_core::Result<()> {
    let caller = Caller { uid: 0, gid: 0, now: NOW };
    volume.set_xattr(ino, b"user.a", value, XattrMode::Any, &caller)
}

fn is_out_of_order(error: &Error) -> bool {
    let (structure, kind) = (Structure::Node, CorruptionKind::Order);
    matches!(error, Error::Corrupt(found @ Corruption { .. })
        if (found.structure, found.kind) == (structure, kind))
}

/// The attributes of a file and its extended attributes are changed at once: each by its own way to
/// the one leaf.
#[test]
fn two_ways_to_a_leaf_are_refused() {
    let volume = mount(&with_drafts(|nodes| {
        small_leaves(nodes);
        nodes.push((0, vec![inode(FILE)]));
        let mut root = entries(nodes, 0);
        root.push((Key::new(FILE, ItemKind::Xattr, 0), vec![nodes.len() as u8 - 1]));
        nodes.push((1, root));
    }));
    let refused = set_xattr(&volume, FILE, b"x").expect_err("the second way is wrong");
    assert!(is_out_of_order(&refused), "{refused}");
    assert!(volume.attributes(FILE).is_ok(), "the first is right");
    volume.close().expect("it is whole");
}

/// The leaf would be divided by a key that does not belong to it, and hide what is before it.
#[test]
fn a_leaf_with_items_of_another_is_refused() {
    let volume = mount(&with_drafts(|nodes| {
        small_leaves(nodes);
        let first = nodes.len();
        let junk = |ino, len| (Key::new(ino, ItemKind::Inline, 0), vec![7; len]);
        nodes.push((0, vec![inode(FILE)]));
        let stray = [junk(20, 1280), junk(30, 1280), junk(40, 600), junk(50, 350)];
        nodes.push((0, stray.into_iter().chain([inode(1000), inode(1600)]).collect()));
        nodes.push((0, vec![inode(2000)]));
        let mut root = entries(nodes, 0);
        root[first + 1].0 = Key::inode(1000);
        nodes.push((1, root));
    }));
    set_xattr(&volume, FILE, b"x").expect("what is sound can be changed");
    let refused = set_xattr(&volume, 1000, &[1; 1000]).expect_err("not all is where it belongs");
    assert!(is_out_of_order(&refused), "{refused}");
    assert!(volume.attributes(FILE).is_ok());
    volume.close().expect("it is whole");
}

/// The runs of a deleted file, with 139 ways to them at each of two levels. When what the last one
/// leads to is removed, its keys fall to the one before it.
fn many_ways_to_an_orphan(nodes: &mut Vec<Draft>) {
    let is_run = |(key, _): &(Key, Vec<u8>)| key.kind == ItemKind::Mapping as u8;
    let leaves = nodes.drain(..).filter(|(level, _)| *level == 0);
    let (runs, others): (Vec<_>, Vec<_>) = leaves.flat_map(|(_, items)| items).partition(is_run);
    nodes.extend(others.chunks(2).map(|items| (0, items.to_vec())));
    nodes.push((1, entries(nodes, 0)));
    let others = nodes.len() - 1;
    nodes.extend(runs.chunks(48).map(|items| (0, items.to_vec())));
    nodes.push((1, entries(nodes, others + 1)));
    for level in 2..=3 {
        let runs = vec![nodes.len() as u8 - 1];
        let way = |n| (Key::new(GONE, ItemKind::Xattr, n), runs.clone());
        let first = 1000 * (3 - u64::from(level));
        let mut ways: Vec<_> = (first..first + 138).map(way).collect();
        if level == 3 {
            nodes.push((2, vec![(Key::inode(0), vec![others as u8])]));
            ways.insert(0, (Key::inode(0), vec![nodes.len() as u8 - 1]));
        }
        nodes.push((level, ways));
    }
}

#[test]
fn an_orphan_with_many_ways_to_it_is_given_up() {
    let mut forge = with_drafts(many_ways_to_an_orphan);
    forge.inode(GONE, &Inode { links: 0, ..forge::file(FileKind::Regular, 1 << 30) });
    forge.put(Key::new(0, ItemKind::Orphan, GONE), vec![0; 8]);
    // As many as go in one step: whether there are more is for the next one to find out.
    for run in 0..128 {
        let mapping = Mapping { address: 5, checksum: Some(1), history: History::plain(2, 9) };
        forge.map(GONE, run * RUN_BLOCKS, mapping);
    }
    let volume = mount(&forge);
    let mut steps = 0;
    let refused = loop {
        match volume.work(NOW) {
            Ok(Work::More) => steps += 1,
            Ok(work) => panic!("{work:?} after {steps} steps"),
            Err(error) => break error,
        }
        assert!(steps < 9, "it goes on and on");
    };
    assert!(is_out_of_order(&refused), "{refused}");
    let refused = volume.audit().expect_err("an entry of it is wrong");
    assert!(is_out_of_order(&refused), "{refused}");
    volume.close().expect("it is whole");
}
