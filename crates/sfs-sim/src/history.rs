//! A recorded life of a volume: what the device was asked, and the state of the reference after
//! each operation.
//!
//! Owns: which states a crash may leave.
//! Promises: an operation counts as acknowledged when it had returned before the power went.
//! Never: opens an image.

use std::ops::RangeInclusive;
use std::sync::Arc;

use sfs_core::Error;
use sfs_core::format::Label;
use sfs_core::request::VolumeOptions;
use sfs_device::{Event, Keep, RecordingDevice};

use crate::crash::Crash;
use crate::image::Image;
use crate::model::digest::{Digest, capture, of_reference};
use crate::model::operation::Operation;
use crate::model::pair::Pair;
use crate::model::reference::Reference;

/// What an operation made durable once it had returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    /// Nothing.
    Nothing,
    /// The namespace, and the content of one file.
    File(u64),
    /// Everything.
    Everything,
}

/// The reference after an operation.
#[derive(Debug)]
pub struct State {
    /// What there is.
    pub reference: Reference,
    /// What of it a crash may not mix.
    pub digest: Digest,
    /// What had become durable.
    pub synced: Synced,
    /// Requests to the device before it began.
    started: usize,
    /// Requests when it had returned.
    done: usize,
}

/// What happened from the mount on.
#[derive(Debug)]
pub struct History {
    /// What the device held at first, durably.
    pub base: Image,
    /// What it was asked.
    pub events: Vec<Event>,
    /// The reference: at first, and after each operation.
    pub states: Vec<State>,
}

impl History {
    /// The states, by their place, that the namespace may be in after `crash`: from the last
    /// acknowledged sync to the operation that issued the last request which arrived.
    pub fn allowed(&self, crash: &Crash) -> RangeInclusive<usize> {
        self.range(crash, |synced| synced != Synced::Nothing)
    }

    /// The states that the content of `ino` may come from.
    pub fn versions(&self, crash: &Crash, ino: u64) -> &[State] {
        let covers = |synced| synced == Synced::Everything || synced == Synced::File(ino);
        &self.states[self.range(crash, covers)]
    }

    /// The labels that the volume may have after `crash`: a new one is durable once it has been given.
    pub fn labels(&self, crash: &Crash) -> impl Iterator<Item = Label> {
        self.states[self.range(crash, |_| true)].iter().map(|state| state.reference.label)
    }

    /// Whether `state` had been reached for good before the power went.
    pub fn is_done(crash: &Crash, state: &State) -> bool {
        state.done <= crash.epoch.end
    }

    /// The power may have gone as late as the flush began, and as early as the last request that
    /// arrived was issued: both bounds hold.
    fn range(&self, crash: &Crash, covers: impl Fn(Synced) -> bool) -> RangeInclusive<usize> {
        let acknowledged = |state: &State| state.done <= crash.epoch.end && covers(state.synced);
        let floor = self.states.iter().rposition(acknowledged).expect("the first is durable");
        let issued = crash.issued_min();
        let last = self.states.iter().rposition(|state| state.started < issued);
        floor..=last.unwrap_or(0).max(floor)
    }
}

/// A life that goes on.
pub struct Life {
    base: Image,
    device: Arc<RecordingDevice<Image>>,
    /// The volume and its reference.
    pub pair: Pair,
    states: Vec<State>,
}

impl Life {
    /// Mounts the volume on `base`, which holds `reference`.
    ///
    /// # Panics
    ///
    /// If it cannot be mounted.
    pub fn begin(base: Image, options: VolumeOptions, reference: Reference, millis: u64) -> Self {
        Self::open(base, options, millis, |_| reference).expect("it opens")
    }

    /// Mounts what a crash has left on `base`: it holds what is found.
    ///
    /// # Errors
    ///
    /// Those of a mount.
    pub fn recover(base: Image, options: VolumeOptions, millis: u64) -> Result<Self, Error> {
        Self::open(base, options, millis, |volume| capture(volume, true))
    }

    fn open(
        base: Image,
        options: VolumeOptions,
        millis: u64,
        reference: impl FnOnce(&sfs_core::Volume) -> Reference,
    ) -> Result<Self, Error> {
        let device = Arc::new(RecordingDevice::new(base.clone(), Keep::Contents));
        let pair = Pair::open(device.clone(), options, millis, reference)?;
        let states = vec![state(&pair, Synced::Everything, 0, 0)];
        Ok(Self { base, device, pair, states })
    }

    /// What the mount wrote was durable before the history begins.
    pub fn skip_mount(&mut self) {
        self.device.reset();
        self.base = self.device.inner().clone();
    }

    /// Carries out `operation`.
    pub fn step(&mut self, operation: &Operation) {
        let started = self.device.event_count();
        self.pair.perform_if_room(operation);
        let synced = match operation {
            Operation::SyncFile { ino } => Synced::File(*ino),
            Operation::SyncAll | Operation::Reopen { .. } => Synced::Everything,
            _ => Synced::Nothing,
        };
        let done = self.device.event_count();
        if done > started {
            self.pair.reference.forget_replaced();
        }
        self.states.push(state(&self.pair, synced, started, done));
    }

    /// Unmounts the volume.
    ///
    /// # Panics
    ///
    /// If it cannot be unmounted.
    pub fn close(&mut self) {
        let started = self.device.event_count();
        self.pair.volume().close().expect("it closes");
        let done = self.device.event_count();
        self.states.push(state(&self.pair, Synced::Everything, started, done));
    }

    /// What the device holds now.
    pub fn image(&self) -> Image {
        self.device.inner().clone()
    }

    /// The history so far; the volume is let go without being closed.
    pub fn end(self) -> History {
        History { base: self.base, events: self.device.take_events(), states: self.states }
    }
}

fn state(pair: &Pair, synced: Synced, started: usize, done: usize) -> State {
    let reference = pair.reference.clone();
    let digest = of_reference(&reference);
    State { reference, digest, synced, started, done }
}
