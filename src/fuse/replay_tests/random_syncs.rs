//! Random changes of content and syncs of every kind, and power cuts in the replay of them.

use std::collections::BTreeMap;

use super::synced::{fdatasync_or_fsync, replay_in_parts, set_size};
use super::*;
use sfs_device::image_after;

const STEPS: usize = 60;

/// Number of events between two power cuts.
const CUT_EVERY: usize = 3;

/// Content that a file must have after a power cut, by its inode: that of its last sync, unless it has changed since.
type Promised = BTreeMap<u64, Vec<u8>>;

fn content(scene: &Scene, node: u64) -> Vec<u8> {
    scene.shell.volume.read(node, 0, 1 << 22).expect("a file").as_bytes().to_vec()
}

/// Changes the content of file `node` in some way.
fn change(scene: &mut Scene, random: &mut SeededRng, node: u64) {
    match random.below(8) {
        0..=4 => {
            let len = 1 + random.below(400_000) as usize;
            let (data, at) = (random.bytes(len), random.below(300_000) as usize);
            for (number, piece) in data.chunks(1 << 17).enumerate() {
                let head = write_head(at + (number << 17), piece, 0);
                scene.ask((WRITE, node), &[&head, piece]).expect("there is room");
            }
        }
        5 => set_size(scene, node, random.below(400_000)),
        6 => set_size(scene, node, 0),
        _ => {
            let mode = [0, 1, 3][random.below(3) as usize];
            let range = longs([0, random.below(300_000), 1 + random.below(200_000)]);
            let allocated = scene.ask((FALLOCATE, node), &[&range, &words([mode, 0])]);
            allocated.expect("there is room");
        }
    }
}

/// Makes a file durable in some way.
fn make_durable(scene: &mut Scene, random: &mut SeededRng, (node, handle): (u64, u64)) {
    if random.one_in(3) {
        let data = random.bytes(4096);
        let at = random.below(80) as usize * 4096;
        let head = write_head(at, &data, libc::O_DSYNC.cast_unsigned());
        scene.ask((WRITE, node), &[&head, &data]).expect("there is room");
    } else {
        fdatasync_or_fsync(scene, node, handle, random.one_in(2));
    }
}

fn run(seed: u64) {
    let mut random = SeededRng::new(seed);
    let mut scene = Scene::new();
    let files: Vec<(u64, u64)> =
        (0..4).map(|number| scene.make(CREATE, &format!("f{number}"), 0o100_644)).collect();
    scene.settle();
    let mut promised = Promised::new();
    for step in 0..STEPS {
        let file @ (node, _) = files[random.below(files.len() as u64) as usize];
        match random.below(14) {
            0..=7 => {
                change(&mut scene, &mut random, node);
                promised.remove(&node);
            }
            8..=10 => {
                make_durable(&mut scene, &mut random, file);
                promised.insert(node, content(&scene, node));
            }
            // A commit of the daemon itself promises nothing.
            11 => scene.shell.volume.sync_file(node).expect("RAM does not fail"),
            12 => drop(scene.make(CREATE, &format!("n{step}"), 0o100_644)),
            _ => {
                scene.ask((SYNCFS, ROOT_INO), &[&longs([0])]).expect("RAM does not fail");
                let all = files.iter().map(|(node, _)| (*node, content(&scene, *node)));
                promised = all.collect();
            }
        }
    }
    let (base, events) = replay_in_parts(scene);
    for count in (0..=events.len()).step_by(CUT_EVERY) {
        let image: Arc<dyn Device> = Arc::new(image_after(&base, &events[..count]));
        let volume = Volume::open(image, VolumeOptions::default(), NOW).expect("it opens");
        for (node, expected) in &promised {
            let read = volume.read(*node, 0, 1 << 22).expect("a file");
            let found = read.as_bytes() == expected;
            assert!(
                found,
                "inode {node} after {count} of {} events; replay: SFS_SEED={seed} SFS_SEEDS=1 cargo test --workspace --lib -- random_syncs",
                events.len()
            );
        }
    }
}

/// `SFS_SEED` is the first seed, and `SFS_SEEDS` their number.
#[test]
fn a_power_cut_in_a_replay_leaves_every_promise() {
    let first = number_from_env("SFS_SEED", 0);
    (first..first + number_from_env("SFS_SEEDS", 4)).for_each(run);
}
