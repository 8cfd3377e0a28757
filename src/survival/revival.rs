//! The beginning of a journal, and going on with that of a process that has died.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::Timestamp;

use super::areas::Areas;
use super::journal::{Journal, OpenedHandle, OpenedNow};
use super::survivors::{RecordedRequest, Survivors};
use crate::exit_error::ExitError;

/// Volume and open handles of a mount.
type Parts = (Arc<Volume>, Box<OpenedNow>);

/// Mount that goes on after its daemon has died.
pub(crate) struct Revival {
    survivors: Survivors,
    /// Inodes of the changes, each referred to until the last of its own is repeated.
    held: BTreeSet<u64>,
    /// `true` if the kernel sends requests again that it has no reply to.
    pub(crate) sends_again: bool,
}

/// Begins the journal of a new mount of the device called `name`, in `areas`.
pub(crate) fn begin(areas: Areas, parts: Parts, name: &str) -> Arc<Journal> {
    Arc::new(Journal::new(parts, name.into(), areas, (Timestamp::default(), 0)))
}

/// Goes on with the journal in `records`, if the mount has one.
pub(crate) fn revive(
    records: Option<File>,
    parts: Parts,
    name: &str,
) -> Result<(Option<Arc<Journal>>, Option<Revival>), ExitError> {
    let Some(records) = records else { return Ok((None, None)) };
    let (areas, records) = Areas::open(records).map_err(incomplete)?;
    let survivors = Survivors::read(records).map_err(incomplete)?;
    let journal =
        Journal::new(parts, name.into(), areas, (survivors.last_time(), survivors.last_done()));
    if survivors.is_resting() {
        journal.go_on_resting();
    }
    let held = survivors.changed_nodes();
    Ok((Some(Arc::new(journal)), Some(Revival { survivors, held, sends_again: true })))
}

impl Revival {
    /// Returns the changes that were recorded, in their order. Whoever repeats them lets go of the inodes, too.
    pub(crate) fn changes(&self) -> &[RecordedRequest] {
        &self.survivors.changes
    }

    /// Returns the number of changes, from the first one on, whose names and attributes are in the log since a sync has finished.
    pub(crate) fn synced_changes(&self) -> usize {
        self.survivors.synced_changes()
    }

    /// Returns whether nothing has to be written, and nothing may be: the mount is read-only since everything was written.
    pub(crate) fn is_resting(&self) -> bool {
        self.survivors.is_resting()
    }

    /// Returns whether the kernel refers to inode `node`.
    pub(crate) fn is_referred(&self, node: u64) -> bool {
        self.survivors.is_referred(node)
    }

    /// Forgets the replies: requests without one have ended with the process before, and the kernel asks for none again.
    pub(crate) fn forget_replies(&mut self) {
        self.sends_again = false;
        self.survivors.forget_replies();
    }

    /// Gives the volume the references of the process before.
    pub(crate) fn adopt_references(&self, volume: &Volume) {
        volume.adopt_references(&self.survivors.references(&self.held));
    }

    /// Returns the handles of the process before, and the largest number that one has had.
    pub(crate) fn handles(&self) -> (Vec<OpenedHandle>, u64) {
        (self.survivors.handles(), self.survivors.last_handle)
    }

    /// Ends the revival, once the changes are repeated.
    pub(crate) fn end(mut self, journal: &Journal) {
        self.survivors.hand_replies_to(journal);
    }
}

fn incomplete(error: impl std::fmt::Display) -> ExitError {
    ExitError::system(format_args!("cannot read the records of the daemon that has died: {error}"))
}
