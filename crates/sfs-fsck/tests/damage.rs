//! Random damage to a volume that the filesystem has used. A repair ends. A file that no loss names is
//! unchanged. A second run finds nothing, and the volume mounts.

mod used;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, ROOT_INO};
use sfs_core::request::VolumeOptions;
use sfs_device::{BLOCK_SIZE, Block, Device, RamDevice, Stream};
use sfs_fsck::{FsckError, Loss, RepairOptions, RepairOutcome, repair};

use used::{BLOCKS, FileTree, NOW, SplitMix64, layout, number, tree, used, used_for, write_more};

fn block(device: &RamDevice, at: u64) -> Box<[Block]> {
    let mut block = Block::zeroed(1);
    device.read(at, &mut block).expect("RAM");
    block
}

/// Damages up to `count` blocks by noise, zeros, a flipped bit, or a copy of another block. Blocks written
/// since `checkpoint` stay: a check cannot tell a damaged chunk past the checkpoint from a torn one.
fn damage(device: &RamDevice, checkpoint: &RamDevice, count: u64, random: &mut SplitMix64) {
    for _ in 0..count {
        // Other tests damage superblocks. A volume without both copies cannot be repaired.
        let at = 16 + random.below(BLOCKS - 17);
        let mut block = block(device, at);
        if block != self::block(checkpoint, at) {
            continue;
        }
        match random.below(4) {
            0 => block[0].0.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
            1 => block[0].0.fill(0),
            2 => {
                let bit = random.below(BLOCK_SIZE as u64 * 8) as usize;
                block[0].0[bit / 8] ^= 1 << (bit % 8);
            }
            _ => device.read(16 + random.below(BLOCKS - 17), &mut block).expect("RAM"),
        }
        device.write(at, &[&block], Stream::default()).expect("RAM");
    }
}

/// Returns whether a loss names `ino`, or a directory on its `path`.
fn is_named(losses: &[Loss], inos: &BTreeMap<Vec<u8>, u64>, path: &[u8], ino: u64) -> bool {
    let named = |ino: u64| losses.iter().any(|loss| loss.ino() == Some(ino));
    let target = |loss: &Loss| matches!(loss, Loss::File { target, .. } if *target == ino);
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let mut parents = ends.filter_map(|end| inos.get(&path[..end]));
    named(ino) || named(ROOT_INO) || losses.iter().any(target) || parents.any(|ino| named(*ino))
}

fn run(device: &Arc<RamDevice>) -> Result<RepairOutcome, FsckError> {
    let shared: Arc<dyn Device> = device.clone();
    let options = RepairOptions { data: true, preen: false, now: NOW };
    let mut steps = 0u64;
    let result = repair(&shared, &options, &mut |_| {
        steps += 1;
        ControlFlow::Continue(())
    });
    assert!(steps < 100_000, "{steps} steps");
    result
}

fn try_damage(
    (base, checkpoint): (&RamDevice, &RamDevice),
    original: &FileTree,
    count: u64,
    seed: u64,
) {
    let mut random = SplitMix64(seed);
    let device = Arc::new(base.snapshot());
    damage(&device, checkpoint, count, &mut random);
    let repaired = run(&device).expect("a repair");
    let left = repaired.after.as_ref().unwrap_or(&repaired.before);
    assert_eq!(left.errors(), 0, "left: {:?}", left.findings.kept());
    let again = run(&device).expect("a second run");
    assert_eq!(again.before.errors(), 0, "again: {:?}", again.before.findings.kept());

    let now = tree(device.clone());
    let inos = original.iter().map(|(path, (ino, ..))| (path.clone(), *ino)).collect();
    for (path, (ino, mode, content)) in original {
        if is_named(&repaired.losses, &inos, path, *ino) {
            continue;
        }
        let found = now.get(path);
        let name = path.escape_ascii();
        let (_, found_mode, found) =
            found.unwrap_or_else(|| panic!("{name} ({ino}) is gone: {:?}", repaired.losses));
        assert!(found == content && found_mode == mode, "{name}: {:?}", repaired.losses);
    }
    let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("a mount");
    assert_eq!(volume.audit().expect("an audit"), []);
    write_more(&volume).expect("writes");
    volume.close().expect("an unmount");
    let report = run(&device).expect("a last run").before;
    assert_eq!(report.errors(), 0, "used: {:?}", report.findings.kept());
}

#[test]
fn random_damage_is_repaired_and_all_losses_are_reported() {
    let runs = if std::env::var_os("SFS_SEED").is_some() { 1 } else { number("SFS_RUNS", 4) };
    let first = number("SFS_SEED", 1);
    for is_closed in [true, false] {
        let (base, checkpoint) = used(is_closed);
        let original = tree(Arc::new(base.snapshot()));
        assert!(original.len() > 1000);
        for seed in (first..).take(runs as usize) {
            for count in [1, 10, 100, 1000] {
                println!(
                    "SFS_SEED={seed} cargo test -p sfs-fsck --test damage ({count} blocks, closed {is_closed})"
                );
                try_damage((&base, &checkpoint), &original, count, seed);
            }
        }
    }
}

/// Returns the number of files of `original` that a repair of `device` leaves unchanged, at any
/// path.
fn kept(device: RamDevice, original: &FileTree) -> usize {
    let device = Arc::new(device);
    let repaired = run(&device).expect("a repair");
    let left = repaired.after.as_ref().unwrap_or(&repaired.before);
    assert_eq!(left.errors(), 0, "left: {:?}", left.findings.kept());
    let now = tree(device);
    let found: BTreeMap<u64, &Vec<u8>> =
        now.values().map(|(ino, _, bytes)| (*ino, bytes)).collect();
    original.values().filter(|(ino, _, bytes)| found.get(ino) == Some(&bytes)).count()
}

/// The newest checkpoint, its tree and the beginning of the log are lost. The tree of the older checkpoint is
/// lost, too, and the repair must search the segments as it does without any checkpoint.
#[test]
fn an_older_checkpoint_does_not_prevent_salvage() {
    let (base, layout) = (used_for(1, true).0, layout());
    let original = tree(Arc::new(base.snapshot()));
    assert!(original.len() > 300);
    let wipe = |device: &RamDevice, at: u64, count: u64| {
        device.write(at, &[&Block::zeroed(count as usize)], Stream::default()).expect("RAM");
    };
    let number = |slot: usize| {
        let mut blocks = Block::zeroed(CHECKPOINT_SLOT_BLOCKS as usize);
        base.read(layout.slots[slot], &mut blocks).expect("RAM");
        let id = u64::from_le_bytes(*b"01234567");
        let record = CheckpointRecord::decode(Block::bytes_of(&blocks), id, layout.slots[slot]);
        record.expect("a checkpoint").number
    };
    let newest = usize::from(number(1) > number(0));
    let segment_blocks = u64::from(layout.segment_blocks);
    let mut rich = 0;
    for segment in 0..30 {
        let device = base.snapshot();
        wipe(&device, layout.slots[newest], CHECKPOINT_SLOT_BLOCKS);
        wipe(&device, layout.segment_address(0), segment_blocks);
        wipe(&device, layout.segment_address(segment), segment_blocks);
        let without_any = device.snapshot();
        wipe(&without_any, layout.slots[1 - newest], CHECKPOINT_SLOT_BLOCKS);
        let (one, none) = (kept(device, &original), kept(without_any, &original));
        println!("segments 0 and {segment}: {one} with the older checkpoint, {none} without");
        assert!(one >= none, "segments 0 and {segment}: {one} with the checkpoint, {none} without");
        rich += usize::from(one > original.len() * 3 / 4);
    }
    // The second wiped segment may hold the entries of all files.
    assert!(rich >= 28, "{rich}");
}
