//! Crashes at any moment of a random run, and crashes of what was recovered.

use std::collections::BTreeSet;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::FileKind;
use sfs_device::RamDevice;

use crate::digest::{capture, data_blocks, of_reference};
use crate::history::{Crash, History};
use crate::operation::Limits;
use crate::random::{Random, Replay, number};
use crate::reference::{Node, Reference};
use crate::rig::{SEGMENT_BLOCKS, after, ram, tight_with};

const TEST: &str = "-p sfs-core --test model what_a_crash_leaves_is_a_prefix";

/// Lives of a volume, each ended by a crash.
const LIVES: u32 = 3;

/// Crashes of one run that are looked at.
const CRASHES: u64 = 12;

/// "After a crash at any point, with any subset of unflushed writes lost and any sector of the last
/// ones torn: the volume mounts without help, [...] and the namespace equals the state after some
/// prefix of the operations, no shorter than the last acknowledged sync."
///
/// "A file's content after a crash is, block by block, the last synced content or something written
/// later; never another file's data, never data older than the synced."
#[test]
fn what_a_crash_leaves_is_a_prefix() {
    let runs = match std::env::var_os("SFS_SEED") {
        Some(_) => 1,
        None => number("SFS_RUNS", 24),
    };
    let limits = Limits { bytes: 1 << 20, files: 40, reopens: true };
    for run in 0..runs {
        let (seed, steps) = (number("SFS_SEED", 1) + run, number("SFS_STEPS", 150));
        let _replay = Replay { test: TEST, seed, steps };
        let mut random = Random::new(seed);
        let mut base = ram(4_400_000 + ((run % 3) << 21), SEGMENT_BLOCKS);
        let mut reference = Reference::new();
        for life in 0..LIVES {
            let millis = u64::from(life) * 100_000_000;
            let history = History::record(
                base,
                tight_with(run + u64::from(life)),
                reference,
                millis,
                &limits,
                &mut random,
                steps,
            );
            for _ in 0..CRASHES {
                check(&history, &history.crash(&mut random), life);
            }
            let last = history.crash(&mut random);
            reference = check(&history, &last, life);
            base = last.image;
        }
    }
}

/// Opens what a crash left, checks it, and gives what is there. The image stays as it is.
fn check(history: &History, crash: &Crash, life: u32) -> Reference {
    let device: Arc<RamDevice> = Arc::new(crash.image.snapshot());
    // Every life has another policy.
    let options = tight_with(u64::from(life) + 1);
    let opened = Volume::open(device.clone(), options.clone(), after(0));
    let volume = opened.unwrap_or_else(|error| panic!("life {life}: it does not open: {error}"));
    let found = capture(&volume, true);
    let digest = of_reference(&found);
    if !history.states(crash).rev().any(|state| of_reference(state) == digest) {
        let last = of_reference(history.states(crash).next_back().expect("a state"));
        let differs = |path: &&Vec<u8>| digest.get(*path) != last.get(*path);
        let paths: BTreeSet<String> = digest
            .keys()
            .chain(last.keys())
            .filter(differs)
            .map(|path| path.escape_ascii().to_string())
            .collect();
        let count = history.states(crash).count();
        panic!("life {life}: none of {count} states; differs from the last in {paths:?}");
    }
    for (ino, node) in &found.nodes {
        if node.kind() == FileKind::Regular {
            check_content(history, crash, &volume, *ino, node);
        }
    }
    assert_eq!(volume.audit().expect("it can be counted"), [], "life {life}");
    // Once more, as if the power had gone right after the mount.
    drop(volume);
    let volume = Volume::open(device, options, after(0)).expect("it opens again");
    assert_eq!(of_reference(&capture(&volume, false)), digest, "the second mount differs");
    found
}

fn check_content(history: &History, crash: &Crash, volume: &Volume, ino: u64, found: &Node) {
    let mut versions: Vec<&Node> =
        history.versions(crash, ino).filter_map(|state| state.node(ino).ok()).collect();
    versions.dedup_by(|a, b| std::ptr::eq(*a, *b));
    let size = found.content.size;
    let sizes = versions.iter().map(|version| version.content.size);
    let (least, most) = (sizes.clone().min(), sizes.max());
    let fits = least.is_some_and(|least| least <= size) && most.is_some_and(|most| size <= most);
    assert!(fits, "{ino} has {size} bytes, expected {least:?}..={most:?}");
    let mut blocks: BTreeSet<u32> = data_blocks(volume, ino).into_iter().collect();
    blocks.extend(versions.iter().flat_map(|version| version.content.blocks.keys()));
    for block in blocks {
        let start = u64::from(block) * 4096;
        let len = size.saturating_sub(start).min(4096) as usize;
        let bytes = found.content.block(block);
        let is_from = |version: &&&Node| {
            version.content.size > start && version.content.block(block)[..len] == bytes[..len]
        };
        let known = len == 0 || versions.iter().any(|version| is_from(&version));
        assert!(known, "block {block} of {ino} is from none of {} versions", versions.len());
    }
}
