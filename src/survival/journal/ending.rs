//! The end of the records before that of the mount: it does not survive the death of its daemon any more.

use super::{Journal, State};
use crate::survival::areas::Useless;

impl Journal {
    /// Records nothing any more. The mount serves on, and ends when this process dies.
    pub(super) fn give_up(&self, state: &mut State, error: &dyn std::fmt::Display) {
        self.end_records(state, Useless::Incomplete);
        tracing::error!("{}: does not survive the end of its daemon any more: {error}", self.name);
    }

    fn end_records(&self, state: &mut State, why: Useless) {
        state.has_given_up = true;
        let _ = state.areas.give_up(why);
        self.discarded.notify_all();
        self.full.notify_all();
    }

    /// Notes that the volume must not be written any more, not even by another process.
    pub(super) fn note_stopped(&self, state: &mut State) {
        if !state.is_volume_stopped {
            state.is_volume_stopped = true;
            self.end_records(state, Useless::Stopped);
            tracing::error!(
                "{}: the volume was stopped: it does not survive the end of its daemon any more",
                self.name
            );
        }
    }

    /// Notes that the volume is about to be stopped.
    pub(crate) fn stop_volume(&self) {
        self.note_stopped(&mut self.state.lock());
    }

    /// Looks whether the volume was stopped.
    pub(crate) fn look(&self) {
        if self.volume.has_failed() {
            self.stop_volume();
        }
    }

    /// Gives up because what is recorded cannot be written to the log.
    pub(in crate::survival) fn fail(&self, error: &sfs_core::Error) {
        self.give_up(&mut self.state.lock(), error);
    }
}
