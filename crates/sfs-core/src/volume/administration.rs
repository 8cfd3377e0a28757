//! Work that an administrator asks for while the volume is used: a checkpoint, and cleaning.

use super::Volume;
use crate::Result;
use crate::request::{CleanedRound, WrittenCheckpoint};

impl Volume {
    /// Commits everything and writes a checkpoint, whether one is due or not. A mount after a crash then has nothing to roll
    /// forward.
    ///
    /// # Errors
    ///
    /// `ReadOnly` or `Stopped` if nothing may be written; otherwise the errors of a sync and of a checkpoint.
    pub fn checkpoint(&self) -> Result<WrittenCheckpoint> {
        self.health.check_writable()?;
        self.write_access_times()?;
        let written = self.space.checkpoint_now(&mut self.log.lock());
        self.superblocks.after(written)
    }

    /// Cleans up to `segments_max` segments, at least one, in one round: moves their live blocks. `goes_on` is called
    /// before each step of reading up to 1 MiB, may pause, and ends the round by `false`: then nothing is moved. The round is
    /// committed in batches within [`Volume::bound_batches`], so that a sync waits for no more than one.
    /// Returns `None` if no segment is worth cleaning at present; there may be one after a checkpoint.
    ///
    /// # Errors
    ///
    /// `ReadOnly` or `Stopped` if nothing may be written; otherwise the errors of a commit.
    pub fn clean_round(
        &self,
        segments_max: u32,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<CleanedRound>> {
        self.health.check_writable()?;
        self.superblocks.after(self.space.clean_round(segments_max, goes_on, &mut 0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_device::{Keep, RamDevice, RecordingDevice};

    use crate::Error;
    use crate::fixture::{BLOCKS, NOW, create, new_volume, put, write};
    use crate::format::SegmentState;
    use crate::recovery::read_checkpoints;
    use crate::request::VolumeOptions;
    use crate::{Volume, fixture};

    /// The report equals the counts of the device, and the next mount has nothing to roll forward.
    #[test]
    fn a_checkpoint_reports_what_the_device_has_written() {
        let device = Arc::new(RecordingDevice::new(RamDevice::new(BLOCKS), Keep::Requests));
        let volume = new_volume(device.clone());
        let before = device.counts().written_blocks;
        let empty = volume.checkpoint().expect("a checkpoint");
        let file = create(&volume, "file");
        write(&volume, file, &[1; 50_000]);
        let written = volume.checkpoint().expect("a checkpoint");
        assert_eq!(written.number, empty.number + 1);
        assert_eq!(written.data_bytes, 13 * 4096);
        let parts = written.data_bytes + written.metadata_bytes + written.summary_bytes;
        assert_eq!(parts, written.device_bytes);
        let blocks = device.counts().written_blocks - before;
        assert_eq!((empty.device_bytes + written.device_bytes) / 4096, blocks);
        let record = read_checkpoints(&*device, volume.superblock()).expect("a checkpoint").record;
        assert_eq!((record.number, record.unmounted), (written.number, false));
        let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        let again = Volume::open(device, read_only, NOW).expect("the volume opens");
        assert_eq!(again.read(file, 0, 1).expect("the file reads").as_bytes(), [1]);
        assert!(matches!(again.checkpoint(), Err(Error::ReadOnly)));
    }

    /// Cleaning on request moves what lives in half empty segments, although segments are not short, and reports it.
    #[test]
    fn cleaning_that_is_asked_for_empties_segments() {
        let device = Arc::new(RecordingDevice::new(RamDevice::new(BLOCKS), Keep::Requests));
        let volume = new_volume(device.clone());
        let files: Vec<u64> = (0..16).map(|n| create(&volume, &format!("{n}"))).collect();
        for block in 0..40 {
            for file in &files {
                put(&volume, *file, block, 1, *file as u8).expect("there is room");
            }
            volume.sync_all().expect("a sync");
        }
        for file in files.iter().step_by(2) {
            fixture::set_size(&volume, *file, 0);
        }
        volume.checkpoint().expect("a checkpoint");
        let clean = |volume: &Volume| volume.status().segments.clean;
        let (first_clean, segment_blocks) = (clean(&volume), 32);
        let written = device.counts().written_blocks;
        let (mut segments, mut moved, mut bytes, mut calls) = (0, 0, 0, 0);
        for _ in 0..4 {
            let round = volume.clean_round(5, &mut || {
                calls += 1;
                true
            });
            let Some(round) = round.expect("the round succeeds") else { break };
            assert!((1..=5).contains(&round.segments));
            let written = round.device_bytes / 4096 + round.moved_nodes;
            assert_eq!(round.gained_blocks, u64::from(round.segments) * segment_blocks - written);
            segments += round.segments;
            moved += round.moved_blocks;
            bytes += round.device_bytes;
        }
        assert!(segments >= 15 && calls >= segments, "{segments} segments, {calls} steps");
        assert_eq!(volume.counters().segments_cleaned, u64::from(segments));
        assert_eq!(volume.counters().cleaning_bytes, moved * 4096);
        assert_eq!(bytes / 4096, device.counts().written_blocks - written);
        let gained = u64::from(segments) * segment_blocks - bytes / 4096;
        volume.checkpoint().expect("a checkpoint");
        assert!(u64::from(clean(&volume) - first_clean) * segment_blocks + 96 >= gained);
        for file in files.iter().skip(1).step_by(2) {
            let content = volume.read(*file, 0, 40 * 4096).expect("the file reads");
            assert!(content.as_bytes().iter().all(|byte| *byte == *file as u8));
        }
        assert_eq!(volume.audit().expect("the audit counts"), []);
    }

    #[test]
    fn a_round_that_is_ended_moves_nothing_and_leaves_its_victims_to_others() {
        let volume = new_volume(Arc::new(RamDevice::new(BLOCKS)));
        let file = create(&volume, "file");
        for _ in 0..2 {
            for part in 0..5 {
                put(&volume, file, part * 40, 40, 1).expect("there is room");
                volume.sync_all().expect("a sync");
            }
        }
        put(&volume, file, 1, 20, 2).expect("there is room");
        volume.checkpoint().expect("a checkpoint");
        let mut calls = 0;
        let ended = volume.clean_round(u32::MAX, &mut || {
            calls += 1;
            calls < 2
        });
        assert_eq!(ended.expect("the round ends"), None);
        assert_eq!((calls, volume.counters().cleaning_bytes), (2, 0));
        let round = volume.clean_round(1, &mut || true).expect("the round succeeds");
        assert_eq!(round.expect("the same victim").segments, 1);
        assert!(
            volume.metadata.read().usage.entries().iter().any(|entry| {
                matches!(entry.state, SegmentState::Drained | SegmentState::Sealed)
            })
        );
    }
}
