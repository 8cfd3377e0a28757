//! A volume under load writes at most a tenth more data than the laboratory predicts for its
//! policy.

use std::sync::Arc;

use sfs_core::format::{Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{Caller, Counters, VolumeOptions, WriteMode};
use sfs_core::{Volume, make, root_directory};
use sfs_device::{BLOCK_SIZE, RamDevice};
use sfs_lab::simulation::{Buffering, VolumeSize, VolumeSizeRequest, WriteOutPolicy};
use sfs_lab::simulation::{Experiment, MetadataOverhead};
use sfs_lab::workload::Source;

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };
const CALLER: Caller = Caller { uid: 0, gid: 0, now: NOW, umask: None };

const SEGMENTS: u32 = 1024;
const SEGMENT_BLOCKS: u32 = 128;

/// Size of the write buffer in blocks, in proportion to the write buffer of a volume of 8 GiB. The
/// volume starts to write when half of the buffer is used.
const BUFFER_BLOCKS: u32 = 1024;

/// Number of writes between two runs of background work.
const WORK_INTERVAL: u32 = 64;

/// Number of writes before measuring, and of measured writes, in multiples of the file's blocks.
const SIZES: (u32, u32) = (1, 1);

const SEED: u64 = 1;

/// A volume with one file.
struct Loaded {
    volume: Volume,
    file: u64,
    /// Number of blocks of the file.
    blocks: u32,
}

/// Counters before and after the measured writes, and the mean number of empty segments meanwhile.
struct Measured {
    after: Counters,
    before: Counters,
    empty: f64,
}

impl Loaded {
    /// Makes a volume with a file that fills 85% of it.
    fn fill(grouping: &str) -> Self {
        let device = Arc::new(RamDevice::new(u64::from((SEGMENTS + 1) * SEGMENT_BLOCKS)));
        let layout =
            Layout::new(u64::from((SEGMENTS + 1) * SEGMENT_BLOCKS), SEGMENT_BLOCKS.into(), 0);
        let superblock = Superblock {
            uuid: *b"0123456789abcdef",
            label: Label::NONE,
            layout: layout.expect("the layout fits"),
            hash_key: [1, 2],
            data_layout: Default::default(),
            created: NOW,
            ..Superblock::new(layout.expect("the layout fits"))
        };
        make(device.clone(), &superblock, &root_directory(0, 0, NOW)).expect("RAM");
        let options = VolumeOptions {
            grouping: grouping.into(),
            write_buffer: BUFFER_BLOCKS as usize * BLOCK_SIZE,
            ..VolumeOptions::default()
        };
        let volume = Volume::open(device, options, NOW).expect("the volume opens");
        let made = volume.make_node(ROOT_INO, b"file", 0o100_644, 0, &CALLER);
        let file = made.expect("the file is made").ino;
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
            if turn.is_multiple_of(WORK_INTERVAL) {
                self.volume.work(NOW).expect("RAM");
            }
        };
        (0..SIZES.0 * self.blocks).for_each(&mut write);
        let before = self.volume.counters();
        let (mut empty, mut looks) = (0, 0);
        for turn in 0..SIZES.1 * self.blocks {
            write(turn);
            if turn.is_multiple_of(WORK_INTERVAL * 16) {
                let segments = self.volume.status().segments;
                empty += segments.clean + segments.drained;
                looks += 1;
            }
        }
        let empty = f64::from(empty) / f64::from(looks);
        Measured { after: self.volume.counters(), before, empty }
    }
}

impl Measured {
    fn blocks(&self, of: impl Fn(&Counters) -> u64) -> f64 {
        (of(&self.after) - of(&self.before)) as f64 / BLOCK_SIZE as f64
    }
}

/// Returns the number of data blocks written for each block of the user: measured on the volume,
/// and predicted by the laboratory.
fn both(workload: &str, grouping: &str) -> (f64, f64) {
    let source = Source::open(workload).expect("a workload");
    let loaded = Loaded::fill(grouping);
    let measured = loaded.load(&source);
    let data = measured.blocks(|c| c.data_bytes + c.cleaning_bytes);
    let summaries = measured.blocks(|c| c.summary_bytes);
    let space = VolumeSize {
        blocks: loaded.blocks,
        segment_blocks: SEGMENT_BLOCKS,
        segments: SEGMENTS,
        reserve_segments: measured.empty.round() as u32,
    };
    let experiment = Experiment {
        source: &source,
        workload: workload.into(),
        warm_up_source: None,
        space: VolumeSizeRequest {
            utilization: 0.8,
            live_segments: SEGMENTS,
            segment_blocks: SEGMENT_BLOCKS,
            reserve: 0.0,
            blocks: None,
        },
        exact: Some(space),
        dummy: 0.0,
        metadata: MetadataOverhead { summaries: summaries / (data + summaries), nodes: 0.0 },
        buffering: Buffering {
            blocks: Some(BUFFER_BLOCKS / 2),
            writing: WriteOutPolicy::Largest,
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
fn a_full_volume_moves_no_more_than_the_laboratory_predicts() {
    for (workload, grouping) in
        [("zipf:0.99", "sfs-fast12"), ("zipf:0.99", "sfs"), ("uniform", "sfs")]
    {
        let (volume, predicted) = both(workload, grouping);
        println!("{workload}, {grouping}: {volume:.3}, predicted {predicted:.3}");
        assert!(
            volume < predicted * 1.1,
            "{workload}, {grouping}: {volume}, predicted {predicted}"
        );
    }
}
