//! Making changes durable: `fsync`, `syncfs`, and the unmount.
//!
//! A sync returns after a flush that covers everything before it. Syncs that arrive while another
//! sync is under way share the next commit and flush.

use std::sync::atomic::Ordering;

use super::Volume;
use super::log_step::UNSERVED;
use crate::Result;
use crate::log::WholeSyncTicket;
use crate::mutant::{Mutant, mutated};
use crate::writeback::{Selection, StepError};

impl Volume {
    /// Makes the data of `ino` durable, with the attributes that are needed to read it: fdatasync(2). Where nothing but
    /// times of files has changed since the last commit, nothing is written.
    pub fn sync_data(&self, ino: u64) -> Result<()> {
        if self.is_data_durable(ino)? { Ok(()) } else { self.sync_file(ino) }
    }

    /// Returns whether everything but times of files is durable, as far as file `ino` is concerned. A commit that is
    /// under way is waited for.
    fn is_data_durable(&self, ino: u64) -> Result<bool> {
        if self.health.is_read_only() {
            return Ok(true);
        }
        // A sync that has something to write joins the others at once.
        if self.has_data_to_sync(ino) {
            return Ok(false);
        }
        let log = self.log.lock();
        self.health.check_running()?;
        Ok(!log.unflushed && !self.has_data_to_sync(ino))
    }

    /// Returns whether file `ino` has data or a length to be written, or the metadata another change than of times.
    fn has_data_to_sync(&self, ino: u64) -> bool {
        let is_dirty = if mutated(Mutant::DataSyncSkipsSize) {
            self.inodes.find(ino).is_some_and(|file| !file.data().dirty.is_empty())
        } else {
            self.dirty.contains(ino)
        };
        is_dirty || self.metadata.read().has_more_than_times()
    }

    /// Makes every change of `ino`, and every earlier change of the namespace, durable (durability contract,
    /// sentence 1).
    pub fn sync_file(&self, ino: u64) -> Result<()> {
        if mutated(Mutant::CleanFileUnsynced) && !self.dirty.contains(ino) {
            return Ok(());
        }
        self.sync(|| self.sync_one_and_report(ino))
    }

    /// Makes a file durable as [`Volume::sync_file`] does, and reports every loss once to each of several callers.
    /// `reported` is the number of losses that were reported to this caller, and is updated. The losses of a file stay
    /// in memory while a caller refers to the file.
    pub fn sync_file_after(&self, ino: u64, reported: &mut u64) -> Result<()> {
        self.sync_after(ino, reported, || {
            self.write_access_time(ino)?;
            self.sync_queued(Some(ino))
        })
    }

    /// Makes the data of a file durable as [`Volume::sync_data`] does, and reports losses as
    /// [`Volume::sync_file_after`] does.
    pub fn sync_data_after(&self, ino: u64, reported: &mut u64) -> Result<()> {
        self.sync_after(ino, reported, || match self.is_data_durable(ino)? {
            true => Ok(()),
            false => self.sync_queued(Some(ino)),
        })
    }

    /// Answers a sync of file `ino` through a caller, of data only or not, that was announced with `ticket`, as
    /// [`Volume::sync_file_after`] and [`Volume::sync_data_after`] do. If a sync by any thread has served the ticket, this
    /// one waits for nothing.
    pub fn sync_announced_after(
        &self,
        ino: u64,
        (ticket, data_only): (u64, bool),
        reported: &mut u64,
    ) -> Result<()> {
        self.sync_after(ino, reported, || self.sync_announced(ino, ticket, data_only))
    }

    fn sync_announced(&self, ino: u64, ticket: u64, data_only: bool) -> Result<()> {
        let is_alone = ticket == UNSERVED;
        if !data_only && (is_alone || self.metadata.access_times().get(ino).is_some()) {
            // The time of access is in no commit before it is in the tree.
            self.write_access_time(ino)?;
            return self.sync_queued(Some(ino));
        }
        let is_served = !is_alone && self.log.syncs.is_served(ticket);
        if data_only && !is_served && self.is_data_durable(ino)? {
            return Ok(());
        }
        if is_alone {
            return self.sync_queued(Some(ino));
        }
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.serve_sync(ticket)
    }

    fn sync_after(
        &self,
        ino: u64,
        reported: &mut u64,
        sync: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.space.note_request();
        if self.health.is_read_only() {
            return Ok(());
        }
        let synced = self.superblocks.after(sync());
        let Some(file) = self.inodes.find(ino) else { return synced };
        let mut data = file.data();
        let losses = data.errors.report(*reported);
        *reported = data.errors.count();
        synced.and(losses)
    }

    /// Returns the number of losses of file `ino` that were reported. [`Volume::sync_file_after`] reports later losses
    /// to a caller that opens the file now.
    pub fn losses_told(&self, ino: u64) -> u64 {
        self.inodes.find(ino).map_or(0, |file| file.data().errors.reported())
    }

    /// Makes every change durable.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(|| self.sync_all_and_report(u64::MAX))
    }

    fn sync(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        self.space.note_request();
        if self.health.is_read_only() {
            return Ok(());
        }
        self.superblocks.after(sync())
    }

    /// Makes everything durable for a sync that was announced with `ticket`, unless a sync of everything has begun after the
    /// announcement, and has succeeded. Reports every loss since the announcement, also if it was reported to another sync.
    pub fn sync_all_announced(&self, ticket: WholeSyncTicket) -> Result<()> {
        let WholeSyncTicket { number, losses } = ticket;
        if self.log.syncs.is_whole_served(number) {
            return self.dirty.with_errors(|errors| errors.syncs.report(losses));
        }
        self.sync(|| self.sync_all_and_report(losses))
    }

    fn sync_one_and_report(&self, ino: u64) -> Result<()> {
        self.write_access_time(ino)?;
        let state = self.inodes.find(ino);
        let before = state.as_ref().map(|state| state.data().errors.count());
        self.sync_queued(Some(ino))?;
        let state = state.or_else(|| self.inodes.find(ino));
        let report =
            |data: &mut crate::files::FileData| data.errors.report(before.unwrap_or(u64::MAX));
        state.map_or(Ok(()), |state| report(&mut state.data()))
    }

    /// Syncs everything, and reports the losses after the first `losses`, and those after the beginning of the sync.
    fn sync_all_and_report(&self, losses: u64) -> Result<()> {
        let begun = self.log.syncs.begin_whole();
        self.write_access_times()?;
        let before = self.dirty.with_errors(|errors| errors.syncs.count()).min(losses);
        self.sync_queued(None)?;
        self.dirty.with_errors(|errors| errors.syncs.report(before))?;
        self.log.syncs.note_whole_served(begun);
        Ok(())
    }

    /// Makes `file`, or every change, durable, without reporting losses.
    pub(super) fn sync_queued(&self, file: Option<u64>) -> Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        let is_counted_served = match file {
            None => self.space.write_back_in_parts() && mutated(Mutant::PartsForSync),
            Some(ino) => mutated(Mutant::AnnouncedForServed) && self.log.syncs.is_announced(ino),
        };
        if is_counted_served {
            return self.log.flush(&mut self.log.lock());
        }
        self.serve_sync(self.log.syncs.join(file))
    }

    /// Commits every change while nobody waits until it is durable: the device is told the order alone.
    pub(super) fn commit_for_nobody(&self) -> Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        // Who syncs meanwhile waits for one batch, and not for all.
        self.space.write_back_in_parts();
        let mut log = self.log.lock();
        self.health.check_running()?;
        if self.log.is_frozen() {
            return Ok(());
        }
        let committed = self.space.commit(&mut log, &Selection::All);
        committed.map_err(StepError::into_user_error)?;
        self.log.order(&mut log)
    }

    /// Waits until the syncs of generation `ticket` are served, or serves them with all that wait.
    fn serve_sync(&self, ticket: u64) -> Result<()> {
        if self.log.syncs.is_served(ticket) {
            return Ok(());
        }
        let mut log = self.log.lock();
        self.health.check_running()?;
        // A freeze has made everything durable that was changed before it.
        if self.log.syncs.is_served(ticket) || self.log.is_frozen() {
            return Ok(());
        }
        let (generation, target) = self.log.syncs.take();
        let committed = self.space.commit(&mut log, &Selection::from(&target));
        let committed = committed.map_err(StepError::into_user_error);
        let outcome = committed.and_then(|()| self.log.flush(&mut log));
        match outcome {
            Ok(()) => self.log.syncs.note_served(generation),
            // Other threads may wait for the same files, which this commit has not made durable.
            Err(_) => self.log.syncs.put_back(target),
        }
        outcome
    }

    /// Writes everything and a last checkpoint. No write may follow. Changes without damage are written in
    /// spite of damage elsewhere. The error of the damage is returned at the end; [`Volume::is_closed`]
    /// distinguishes it from other errors.
    pub fn close(&self) -> Result<()> {
        if self.health.is_read_only() {
            return Ok(());
        }
        self.superblocks.after(self.write_all_and_close())
    }

    fn write_all_and_close(&self) -> Result<()> {
        self.health.check_running()?;
        let deleted = self.delete_all_orphans();
        self.write_access_times_at_the_end()?;
        self.space.commit_for_unmount(&mut self.log.lock())?;
        self.schedule.note_closed();
        while self.space.discard_step() {}
        self.dirty.with_errors(|errors| errors.unmount.report_new())?;
        deleted
    }
}
