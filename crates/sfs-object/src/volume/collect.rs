//! Deleting objects that nothing has needed for the grace time.

use std::collections::HashSet;

use super::{Failure, ObjectDevice};
use crate::name::ObjectName;
use crate::store::ObjectStore;

/// Largest number of objects that one call deletes: uploads need the store as well.
const DELETIONS_MAX: usize = 1024;

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    /// Uploads what is due as [`ObjectDevice::upload_due`] does, and then deletes as [`ObjectDevice::collect`] does.
    pub fn work(&self, now: u64) -> Result<(), Failure> {
        self.upload_due(now)?;
        self.collect(now);
        Ok(())
    }

    /// Deletes what nothing has needed for the grace time, some objects at once. Uploads go on meanwhile. What the store does not delete is
    /// tried again after another grace time: nothing else depends on it.
    pub fn collect(&self, now: u64) {
        let Some(_turn) = self.collecting.try_lock() else { return };
        let due = self.due_deletions(now);
        if due.is_empty() {
            return;
        }
        // Manifests name what is to be deleted until it is.
        let is_deleted = self.store.delete_all(&due).is_ok();
        let due = due.into_iter().collect::<HashSet<_>>();
        let mut uploader = self.uploader.lock();
        match is_deleted {
            true => uploader.garbage.retain(|(name, _)| !due.contains(name)),
            false => uploader.garbage.iter_mut().for_each(|(_, since)| *since = Some(now)),
        }
    }

    /// Returns what may be deleted now.
    fn due_deletions(&self, now: u64) -> Vec<ObjectName> {
        let mut uploader = self.uploader.lock();
        uploader.garbage.iter_mut().for_each(|(_, since)| *since = since.or(Some(now)));
        let is_due = |since: &Option<u64>| {
            since.is_some_and(|since| now >= since.saturating_add(self.limits.grace_secs))
        };
        let due = uploader.garbage.iter().take_while(|(_, since)| is_due(since));
        due.map(|(name, _)| *name).take(DELETIONS_MAX).collect()
    }
}
