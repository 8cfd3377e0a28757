//! The rest of a volume whose mount is read-only: nothing is written until a change back, and no other process has to write either.

use super::Journal;
use crate::file_clock;
use crate::survival::record;

impl Journal {
    /// Waits until every recorded change is in the log, and notes that nothing may be written from now on. The kernel's mount is
    /// read-only.
    pub(crate) fn rest(&self) {
        let changes = self.changes.lock();
        self.settle(false);
        self.note_rest(true);
        drop(changes);
    }

    /// Notes that something may be written again.
    pub(crate) fn end_rest(&self) {
        if !self.is_resting() {
            return;
        }
        let changes = self.changes.lock();
        self.note_rest(false);
        drop(changes);
    }

    /// Goes on with the rest that an earlier process has noted.
    pub(in crate::survival) fn go_on_resting(&self) {
        self.state.lock().is_resting = true;
    }

    /// Ends a rest for a change: a program has remounted without the daemon. The caller keeps other changes away.
    pub(super) fn leave_rest(&self) {
        let is_resting = self.is_resting();
        // A volume may be read-only although its rest is over, after an error.
        if !is_resting && !self.volume.is_read_only() {
            return;
        }
        self.note_rest(false);
        let begun = self.volume.begin_writing(file_clock::now(), &mut |_| {});
        if let Err(error) = begun
            && is_resting
        {
            tracing::error!("{}: {error}; the volume is read-only from now on", self.name);
        }
    }

    /// Returns whether nothing may be written.
    pub(crate) fn is_resting(&self) -> bool {
        self.state.lock().is_resting
    }

    /// Records the beginning or the end of a rest. The caller keeps changes away.
    fn note_rest(&self, is_resting: bool) {
        let (kind, bytes) = record::resting(is_resting);
        let mut state = self.make_room(bytes.len() + super::LEFT_BY_CHANGES);
        if state.has_ended() || state.is_resting == is_resting {
            return;
        }
        state.is_resting = is_resting;
        self.append(&mut state, kind, [&bytes, &[]]);
    }
}
