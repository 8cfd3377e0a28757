//! Mounts of volumes whose tree has entries that lead to nodes of another range of keys.

use std::sync::Arc;

use sfs_core::format::{
    Corruption, CorruptionKind, FileKind, History, Inode, ItemKind, Key, Mapping, RUN_BLOCKS,
    Structure, Timestamp,
};
use sfs_core::request::{Caller, VolumeOptions, Work, XattrMode};
use sfs_core::{Error, Volume};
use sfs_fsck::Finding;

use super::fixture::errors;
use super::forge::{self, Forge, GONE, NodeDraft};

const NOW: Timestamp = Timestamp { secs: 2_000_000, nanos: 0 };

/// Inode number of the file that the tests change.
const FILE: u64 = 500;

/// Mounts the volume of `forge`, in which a check must find damage.
fn mount(forge: &Forge) -> Volume {
    let image = forge.build();
    let found = errors(&image);
    let is_expected =
        |f: &Finding| matches!(f, Finding::NodeShared { .. } | Finding::NodeRange { .. });
    assert!(found.iter().any(is_expected), "{found:?}");
    let device = Arc::new(image.device.snapshot());
    Volume::open(device, VolumeOptions::default(), NOW).expect("a mount")
}

/// Distributes the items of all drafts to leaves of two items each.
fn small_leaves(nodes: &mut Vec<NodeDraft>) {
    let leaves = nodes.drain(..).filter(|(level, _)| *level == 0);
    let items: Vec<_> = leaves.flat_map(|(_, items)| items).collect();
    nodes.extend(items.chunks(2).map(|items| (0, items.to_vec())));
}

/// Returns the entries of an inner node for `nodes` from `first` on.
fn entries(nodes: &[NodeDraft], first: usize) -> Vec<(Key, Vec<u8>)> {
    let entry = |at: usize| (nodes[at].1[0].0, vec![at as u8]);
    (first..nodes.len()).map(entry).collect()
}

fn inode(ino: u64) -> (Key, Vec<u8>) {
    (Key::inode(ino), forge::file(FileKind::Regular, 0).encode().to_vec())
}

fn with_drafts(change: impl Fn(&mut Vec<NodeDraft>) + 'static) -> Forge {
    let mut forge = Forge::empty();
    forge.on_record = Box::new(|record| record.next_ino = 10_000);
    forge.on_drafts = Box::new(change);
    forge
}

fn set_xattr(volume: &Volume, ino: u64, value: &[u8]) -> sfs_core::Result<()> {
    let caller = Caller { uid: 0, gid: 0, now: NOW, umask: None };
    volume.set_xattr(ino, b"user.a", value, XattrMode::Any, &caller)
}

fn is_out_of_order(error: &Error) -> bool {
    let (structure, kind) = (Structure::Node, CorruptionKind::Order);
    matches!(error, Error::Corrupt(found @ Corruption { .. })
        if (found.structure, found.kind) == (structure, kind))
}

/// One operation changes the attributes and the extended attributes of a file, which have two paths to one
/// leaf.
#[test]
fn two_paths_to_one_leaf_are_refused() {
    let volume = mount(&with_drafts(|nodes| {
        small_leaves(nodes);
        nodes.push((0, vec![inode(FILE)]));
        let mut root = entries(nodes, 0);
        root.push((Key::new(FILE, ItemKind::Xattr, 0), vec![nodes.len() as u8 - 1]));
        nodes.push((1, root));
    }));
    let refused = set_xattr(&volume, FILE, b"x").expect_err("the second path is wrong");
    assert!(is_out_of_order(&refused), "{refused}");
    assert!(volume.attributes(FILE).is_ok(), "the first path is right");
    volume.close().expect("an unmount");
}

/// A split of the leaf at a key outside its range would hide the items before that key.
#[test]
fn a_leaf_with_keys_of_another_leaf_is_refused() {
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
    set_xattr(&volume, FILE, b"x").expect("a change of a sound leaf");
    let refused = set_xattr(&volume, 1000, &[1; 1000]).expect_err("an item is misplaced");
    assert!(is_out_of_order(&refused), "{refused}");
    assert!(volume.attributes(FILE).is_ok());
    volume.close().expect("an unmount");
}

/// Makes 138 paths to the runs of a deleted file at each of two levels. When the node of the last path is
/// removed, its range of keys falls to the path before it.
fn many_paths_to_an_orphan(nodes: &mut Vec<NodeDraft>) {
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
fn deletion_of_an_orphan_with_many_paths_to_it_ends() {
    let mut forge = with_drafts(many_paths_to_an_orphan);
    forge.inode(GONE, &Inode { links: 0, ..forge::file(FileKind::Regular, 1 << 30) });
    forge.put(Key::new(0, ItemKind::Orphan, GONE), vec![0; 8]);
    // One step deletes this number of runs, so the deletion needs a second step.
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
        assert!(steps < 9, "the deletion does not end");
    };
    assert!(is_out_of_order(&refused), "{refused}");
    let refused = volume.audit().expect_err("an entry of the root is wrong");
    assert!(is_out_of_order(&refused), "{refused}");
    volume.close().expect("an unmount");
}
