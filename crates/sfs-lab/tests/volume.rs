//! A volume under load moves as much as its policy has to: what the laboratory says of the same load.

use std::sync::Arc;

use sfs_core::format::{Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{Caller, Counters, VolumeOptions, WriteMode};
use sfs_core::{Volume, make, root_directory};
use sfs_device::{BLOCK_SIZE, RamDevice};
use sfs_lab::run::{Experiment, Metadata};
use sfs_lab::simulation::{Buffering, Space, SpaceRequest, Writing};
use sfs_lab::workload::Source;

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };
const CALLER: Caller = Caller { uid: 0, gid: 0, now: NOW };

const SEGMENTS: u32 = 1024;
const SEGMENT_BLOCKS: u32 = 128;

/// Blocks of the write buffer of which half waits, in proportion what a volume of 8 GiB has by default.
const BUFFER_BLOCKS: u32 = 1024;

/// The background has a turn so often.
const TURN: u32 = 64;

/// Sizes of the file that are written before measuring, and measured.
const SIZES: (u32, u32) = (1, 1);

const SEED: u64 = 1;

struct Loaded {
    volume: Volume,
    file: u64,
    /// Blocks of the file.
    blocks: u32,
}

/// What was written in `SIZES.1`, and how many segments were empty meanwhile, on average.
struct Measured {
    written: Counters,
    before: Counters,
    empty: f64,
}

impl Loaded {
    /// A file that takes 85% of what there is.
    fn fill(grouping: &str) -> Self {
        let device = Arc::new(RamDevice::new(u64::from((SEGMENTS + 1) * SEGMENT_BLOCKS)));
        let layout =
            Layout::new(u64::from((SEGMENTS + 1) * SEGMENT_BLOCKS), SEGMENT_BLOCKS.into(), 0);
        let superblock = Superblock {
            uuid: *b"0123456789abcdef",
            label: Label::NONE,
            layout: layout.expect("it fits"),
            hash_key: [1, 2],
            data_layout: Default::default(),
            created: NOW,
            ..Superblock::new(layout.expect("it fits"))
        };
        make(device.clone(), &superblock, &root_directory(0, 0, NOW)).expect("RAM");
        let options = VolumeOptions {
            grouping: grouping.into(),
            write_buffer: BUFFER_BLOCKS as usize * BLOCK_SIZE,
            ..VolumeOptions::default()
        };
        let volume = Volume::open(device, options, NOW).expect("it opens");
        let made = volume.make_node(ROOT_INO, b"file", 0o100_644, 0, &CALLER);
        let file = made.expect("it is made").ino;
        let blocks = (volume.space().total_blocks * 85 / 100) as u32;
        let loaded = Self { volume, file, blocks };
        (0..blocks).for_each(|block| loaded.write(block));
        loaded
    }

    fn write(&self, block: u32) {
        let at = u64::from(block) * BLOCK_SIZE as u64;
        let content = [block as u8; BLOCK_SIZE];
        self.volume
            .write(self.file, at, &content, WriteMode::default(), &CALLER)
            .expect("there is room");
    }

    fn load(&self, source: &Source) -> Measured {
        let mut stream = source.stream(self.blocks, SEED);
        let mut write = |turn: u32| {
            self.write(stream.next().block());
            if turn.is_multiple_of(TURN) {
                self.volume.work(NOW).expect("RAM");
            }
        };
        (0..SIZES.0 * self.blocks).for_each(&mut write);
        let before = self.volume.counters();
        let (mut empty, mut looks) = (0, 0);
        for turn in 0..SIZES.1 * self.blocks {
            write(turn);
            if turn.is_multiple_of(TURN * 16) {
                let segments = self.volume.status().segments;
                empty += segments.clean + segments.drained;
                looks += 1;
            }
        }
        let empty = f64::from(empty) / f64::from(looks);
        Measured { written: self.volume.counters(), before, empty }
    }
}

impl Measured {
    fn blocks(&self, of: impl Fn(&Counters) -> u64) -> f64 {
        (of(&self.written) - of(&self.before)) as f64 / BLOCK_SIZE as f64
    }
}

/// Blocks of data for each that the user wrote: of the volume, and as the laboratory has it.
fn both(workload: &str, grouping: &str) -> (f64, f64) {
    let source = Source::open(workload).expect("a workload");
    let loaded = Loaded::fill(grouping);
    let measured = loaded.load(&source);
    let data = measured.blocks(|c| c.data_bytes + c.cleaning_bytes);
    let summaries = measured.blocks(|c| c.summary_bytes);
    let space = Space {
        blocks: loaded.blocks,
        segment_blocks: SEGMENT_BLOCKS,
        segments: SEGMENTS,
        reserve: measured.empty.round() as u32,
    };
    let experiment = Experiment {
        source: &source,
        workload: workload.into(),
        warm_up_source: None,
        space: SpaceRequest {
            utilization: 0.8,
            live_segments: SEGMENTS,
            segment_blocks: SEGMENT_BLOCKS,
            reserve: 0.0,
            blocks: None,
        },
        exact: Some(space),
        dummy: 0.0,
        metadata: Metadata { summaries: summaries / (data + summaries), nodes: 0.0 },
        buffering: Buffering {
            blocks: Some(BUFFER_BLOCKS / 2),
            writing: Writing::Largest,
            ..Buffering::NONE
        },
        grouping: grouping.into(),
        victims: None,
        groups: None,
        warm_up: f64::from(SIZES.0),
        measure: f64::from(SIZES.1),
        seed: SEED,
    };
    let predicted = experiment.run(&mut |_, _| ()).expect("an outcome").amplification_user;
    (data / measured.blocks(|c| c.user_bytes_written), predicted)
}

#[test]
fn a_full_volume_moves_what_its_policy_has_to() {
    for (workload, grouping) in
        [("zipf:0.99", "sfs"), ("zipf:0.99", "lifetime"), ("uniform", "sfs")]
    {
        let (volume, predicted) = both(workload, grouping);
        println!("{workload}, {grouping}: {volume:.3}, predicted {predicted:.3}");
        assert!(
            volume < predicted * 1.1,
            "{workload}, {grouping}: {volume}, predicted {predicted}"
        );
    }
}
