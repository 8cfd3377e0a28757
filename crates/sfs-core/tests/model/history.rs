//! A recorded run: what the device was asked, and the state of the reference after each operation.
//!
//! Owns: crash images, and which states a crash may leave.
//! Promises: an image is what a device may hold that loses any subset of its unflushed writes.
//! Never: opens an image.

use std::sync::Arc;

use sfs_device::{Event, Keep, RamDevice, RecordingDevice, image_after};

use crate::operation::{Limits, Operation, choose};
use crate::pair::Pair;
use crate::random::Random;
use crate::reference::Reference;
use sfs_core::request::Options;

/// What an operation made durable once it had returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Synced {
    Nothing,
    File(u64),
    Everything,
}

/// The reference after an operation.
struct State {
    reference: Reference,
    /// Events before it began, and when it had returned.
    started: usize,
    done: usize,
    synced: Synced,
}

pub(crate) struct History {
    base: RamDevice,
    events: Vec<Event>,
    states: Vec<State>,
}

/// A moment at which the power goes.
pub(crate) struct Crash {
    pub(crate) image: RamDevice,
    /// Events that were issued.
    issued: usize,
}

impl History {
    /// Runs `steps` random operations from `millis` on, on the volume on `base`, which holds
    /// `reference`.
    pub(crate) fn record(
        base: RamDevice,
        options: Options,
        reference: Reference,
        millis: u64,
        limits: &Limits,
        random: &mut Random,
        steps: u64,
    ) -> Self {
        let device = Arc::new(RecordingDevice::new(base.snapshot(), Keep::Contents));
        let first =
            State { reference: reference.clone(), started: 0, done: 0, synced: Synced::Everything };
        let mut states = vec![first];
        let mut pair = Pair::with(device.clone(), options, reference, millis);
        for _ in 0..steps {
            let operation = choose(random.next(), &pair.reference, limits);
            // A listing lets guests come and go, which are operations of their own.
            if matches!(operation, Operation::List { .. }) {
                continue;
            }
            let started = device.event_count();
            pair.perform(&operation);
            let synced = match operation {
                Operation::SyncFile { ino } => Synced::File(ino),
                Operation::SyncAll | Operation::Reopen { .. } => Synced::Everything,
                _ => Synced::Nothing,
            };
            let (reference, done) = (pair.reference.clone(), device.event_count());
            states.push(State { reference, started, done, synced });
        }
        Self { base, events: device.events(), states }
    }

    /// A crash at a random moment: what had been flushed is there, of the rest a random part.
    pub(crate) fn crash(&self, random: &mut Random) -> Crash {
        let issued = random.below(self.events.len() as u64 + 1) as usize;
        let before = &self.events[..issued];
        let flushed =
            before.iter().rposition(|event| *event == Event::Flush).map_or(0, |at| at + 1);
        let image = image_after(&self.base, &before[..flushed]);
        let share = random.pick(&[0, 1, 2, 3, 4]);
        let tears = random.one_in(2);
        for event in &before[flushed..] {
            match random.below(4) {
                dice if dice < share && tears && random.one_in(3) => {
                    let mut sectors = random.clone();
                    event.apply_torn(&image, |_| !sectors.one_in(3));
                    random.next();
                }
                dice if dice < share => event.apply(&image),
                _ => {}
            }
        }
        Crash { image, issued }
    }

    /// The states that the namespace may be in after a crash: from the last acknowledged sync to
    /// the last operation that had begun.
    pub(crate) fn states(&self, crash: &Crash) -> impl DoubleEndedIterator<Item = &Reference> {
        let floor = self.floor(crash, |synced| synced != Synced::Nothing);
        self.states[floor..=self.last(crash)].iter().map(|state| &state.reference)
    }

    /// The states that the content of `ino` may come from.
    pub(crate) fn versions(&self, crash: &Crash, ino: u64) -> impl Iterator<Item = &Reference> {
        let covers = |synced| synced == Synced::Everything || synced == Synced::File(ino);
        self.states[self.floor(crash, covers)..=self.last(crash)]
            .iter()
            .map(|state| &state.reference)
    }

    fn floor(&self, crash: &Crash, covers: impl Fn(Synced) -> bool) -> usize {
        let acknowledged = |state: &State| state.done <= crash.issued && covers(state.synced);
        self.states.iter().rposition(acknowledged).expect("the first state is durable")
    }

    fn last(&self, crash: &Crash) -> usize {
        let begun = |state: &State| state.started < crash.issued || state.done <= crash.issued;
        self.states.iter().rposition(begun).unwrap_or(0)
    }
}
