//! Recorded runs: the requests to the device, and the state of the reference after each operation.
//!
//! A recorder performs operations on a volume and its reference. The recorded run tells the states that the
//! contract allows after a crash. An operation is acknowledged if it returned before the crash.

use std::ops::RangeInclusive;
use std::sync::Arc;

use sfs_core::Error;
use sfs_core::format::{DataLayout, Label};
use sfs_core::request::VolumeOptions;
use sfs_device::{Event, Keep, RecordingDevice};

use crate::crash::Crash;
use crate::image::CowImage;
use crate::model::digest::{Digest, capture, of_reference};
use crate::model::operation::VolumeOperation;
use crate::model::pair::VolumePair;
use crate::model::reference::Reference;
use crate::wear_floor::WearFloor;

/// Part of the state that is durable when an operation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    /// Nothing.
    Nothing,
    /// The content of one file.
    Data(u64),
    /// The namespace, and the content of one file.
    File(u64),
    /// Everything.
    Everything,
}

/// State of the reference after an operation.
#[derive(Debug)]
pub struct RunState {
    /// Complete state.
    pub reference: Reference,
    /// Part of the state that a crash must not mix with other states.
    pub digest: Digest,
    /// Number of segments of the volume.
    segments: u32,
    /// Part of the state that the operation made durable.
    pub synced: Synced,
    /// Wear that the last durable checkpoint has at least.
    wear: Arc<WearFloor>,
    /// Number of requests to the device before the operation began.
    started: usize,
    /// Number of requests when the operation returned.
    done: usize,
}

/// Recording of a run, from the mount on.
#[derive(Debug)]
pub struct RecordedRun {
    /// Durable content of the device at the beginning.
    pub base: CowImage,
    /// Requests to the device.
    pub events: Vec<Event>,
    /// States of the reference: the initial one, and one after each operation.
    pub states: Vec<RunState>,
}

impl RecordedRun {
    /// Returns the indexes of the states that the namespace may have after `crash`.
    ///
    /// The range begins with the last acknowledged sync, and ends with the operation that issued the last
    /// request which arrived.
    pub fn allowed(&self, crash: &Crash) -> RangeInclusive<usize> {
        self.range(crash, |synced| matches!(synced, Synced::File(_) | Synced::Everything))
    }

    /// Returns the states that the content of `ino` may come from after `crash`.
    pub fn versions(&self, crash: &Crash, ino: u64) -> &[RunState] {
        let covers = |synced| {
            synced == Synced::Everything
                || synced == Synced::File(ino)
                || synced == Synced::Data(ino)
        };
        &self.states[self.range(crash, covers)]
    }

    /// Returns the states that the time of access of `ino` may come from after `crash`.
    pub fn access_times(&self, crash: &Crash, ino: u64) -> &[RunState] {
        let covers = |synced| synced == Synced::Everything || synced == Synced::File(ino);
        &self.states[self.range(crash, covers)]
    }

    /// Returns the labels that the volume may have after `crash`. A change of the label is durable when the
    /// operation returns.
    pub fn labels(&self, crash: &Crash) -> impl Iterator<Item = Label> {
        self.states[self.range(crash, |_| true)].iter().map(|state| state.reference.label)
    }

    /// Returns the numbers of segments that the volume may have after `crash`. A growth is durable when the
    /// operation returns.
    pub fn sizes(&self, crash: &Crash) -> impl Iterator<Item = u32> {
        self.states[self.range(crash, |_| true)].iter().map(|state| state.segments)
    }

    /// Returns the wear that a mount finds at least after `crash`.
    pub fn wear_floor(&self, crash: &Crash) -> &WearFloor {
        &self.states[*self.range(crash, |_| true).start()].wear
    }

    /// Returns whether the operation of `state` had returned before the crash.
    pub fn is_done(crash: &Crash, state: &RunState) -> bool {
        state.done <= crash.epoch.end
    }

    /// Returns the indexes of the states from the last durable one that `covers` accepts to the newest one
    /// that may have arrived.
    ///
    /// The power cut can have happened at any time from the issue of the last request that arrived
    /// to the beginning of the next flush. The range holds for both bounds.
    fn range(&self, crash: &Crash, covers: impl Fn(Synced) -> bool) -> RangeInclusive<usize> {
        let acknowledged = |state: &RunState| state.done <= crash.epoch.end && covers(state.synced);
        let floor = self.states.iter().rposition(acknowledged).expect("state 0 is durable");
        let issued = crash.issued_min();
        let last = self.states.iter().rposition(|state| state.started < issued);
        floor..=last.unwrap_or(0).max(floor)
    }
}

/// Recorder of a run that is in progress.
pub struct RunRecorder {
    base: CowImage,
    device: Arc<RecordingDevice<CowImage>>,
    /// The volume and its reference.
    pub pair: VolumePair,
    states: Vec<RunState>,
    /// Wear when the last operation returned.
    wear: WearFloor,
    /// Number of checkpoints of this mount when the last operation returned.
    checkpoints: u64,
}

impl RunRecorder {
    /// Mounts the volume on `base`, whose content is `reference`, at virtual time `millis`.
    ///
    /// # Panics
    ///
    /// If the mount fails.
    pub fn begin(
        base: CowImage,
        options: VolumeOptions,
        reference: Reference,
        millis: u64,
    ) -> Self {
        Self::open(base, options, millis, |_| reference).expect("the volume opens")
    }

    /// Mounts the volume that a crash left on `base`, and takes its content as the reference.
    ///
    /// # Errors
    ///
    /// The error of the mount.
    pub fn recover(base: CowImage, options: VolumeOptions, millis: u64) -> Result<Self, Error> {
        Self::open(base, options, millis, |volume| capture(volume, true))
    }

    fn open(
        base: CowImage,
        options: VolumeOptions,
        millis: u64,
        reference: impl FnOnce(&sfs_core::Volume) -> Reference,
    ) -> Result<Self, Error> {
        let device = Arc::new(RecordingDevice::new(base.clone(), Keep::Contents));
        let pair = VolumePair::open(device.clone(), options, millis, reference)?;
        let checkpoints = pair.volume().counters().checkpoints;
        let wear = WearFloor::of(pair.volume());
        // The writes of the mount may not have arrived, unless they are skipped.
        let states = vec![state(&pair, Synced::Everything, (0, 0), Arc::default())];
        Ok(Self { base, device, pair, states, wear, checkpoints })
    }

    /// Makes the writes of the mount part of the durable base, so that no crash state is made of them.
    pub fn skip_mount(&mut self) {
        self.device.reset();
        self.base = self.device.inner().clone();
        // The mount may have lacked the space for a checkpoint.
        if self.checkpoints > 0 {
            self.states[0].wear = Arc::new(self.wear.clone());
        }
    }

    /// Performs `operation` and records the new state.
    pub fn step(&mut self, operation: &VolumeOperation) {
        let started = self.device.event_count();
        self.pair.perform_if_room(operation);
        let synced = match operation {
            VolumeOperation::SyncFile { ino } => Synced::File(*ino),
            VolumeOperation::SyncData { ino } => Synced::Data(*ino),
            VolumeOperation::SyncAll | VolumeOperation::Reopen { .. } => Synced::Everything,
            _ => Synced::Nothing,
        };
        self.push_state(synced, started, matches!(operation, VolumeOperation::Reopen { .. }));
    }

    /// Does a step of the thread for the log, and records that nothing was promised by it. A step may lack space, as a later
    /// write or sync reports, and fails for no other reason.
    pub fn log_step(&mut self) {
        let started = self.device.event_count();
        match self.pair.volume().log_step() {
            Ok(_) | Err(Error::NoSpace) => {}
            Err(error) => panic!("a step of the thread for the log failed: {error}"),
        }
        self.push_state(Synced::Nothing, started, false);
    }

    /// Records the state after an operation that began after `started` requests.
    fn push_state(&mut self, synced: Synced, started: usize, is_mount: bool) {
        let done = self.device.event_count();
        if done > started {
            self.pair.reference.forget_replaced();
        }
        let mut floor = self.next_floor(is_mount);
        // Blocks that are overwritten in place are not counted again after a crash.
        let is_log = self.pair.volume().superblock().data_layout == DataLayout::Log;
        if synced == Synced::Everything && is_log {
            Arc::make_mut(&mut floor).raise_erases(&self.wear);
        }
        self.states.push(state(&self.pair, synced, (started, done), floor));
    }

    /// Unmounts the volume.
    ///
    /// # Panics
    ///
    /// If the unmount fails.
    pub fn close(&mut self) {
        let started = self.device.event_count();
        self.pair.volume().close().expect("the volume closes");
        let done = self.device.event_count();
        let floor = self.next_floor(false);
        self.states.push(state(&self.pair, Synced::Everything, (started, done), floor));
    }

    /// Returns the wear that the last checkpoint has at least, after an operation, which may be a mount.
    fn next_floor(&mut self, is_mount: bool) -> Arc<WearFloor> {
        let before = std::mem::replace(&mut self.wear, WearFloor::of(self.pair.volume()));
        let earlier = if is_mount { 0 } else { self.checkpoints };
        self.checkpoints = self.pair.volume().counters().checkpoints;
        let last = self.states.last().map(|state| state.wear.clone()).unwrap_or_default();
        match self.checkpoints > earlier {
            // The checkpoint of a mount has all that was found.
            true if is_mount => Arc::new(self.wear.clone()),
            // The checkpoint was written in the operation, and has what was counted before.
            true => Arc::new(before.of_segments(&self.wear)),
            false => last,
        }
    }

    /// Returns the current content of the device.
    pub fn image(&self) -> CowImage {
        self.device.inner().clone()
    }

    /// Returns the recording, and drops the volume without closing it.
    pub fn end(self) -> RecordedRun {
        RecordedRun { base: self.base, events: self.device.take_events(), states: self.states }
    }
}

fn state(
    pair: &VolumePair,
    synced: Synced,
    (started, done): (usize, usize),
    wear: Arc<WearFloor>,
) -> RunState {
    let reference = pair.reference.clone();
    let digest = of_reference(&reference);
    let segments = pair.volume().layout().segment_count;
    RunState { reference, digest, segments, synced, wear, started, done }
}
