//! The volume that a mount shows now.
//!
//! It is one and the same until the end, but for a read-only mount of a volume in an object store, which goes on to newer states: each of
//! them is a [`Volume`] of its own. What lives as long as the mount, such as its threads and the control socket, asks for the volume
//! before each piece of work and keeps it no longer, so that an earlier state ends with its last request.

use std::sync::Arc;

use parking_lot::RwLock;
use sfs_core::Volume;

/// The volume of a mount, which may be replaced by a newer state of it.
pub(crate) struct MountedVolume(RwLock<Arc<Volume>>);

impl MountedVolume {
    /// Returns the place of `volume`.
    pub(crate) fn new(volume: Arc<Volume>) -> Self {
        Self(RwLock::new(volume))
    }

    /// Returns the volume of now. Whoever works for long asks again.
    pub(crate) fn now(&self) -> Arc<Volume> {
        self.0.read().clone()
    }

    /// Puts `volume` in the place of the one of now.
    pub(crate) fn replace(&self, volume: Arc<Volume>) {
        let before = std::mem::replace(&mut *self.0.write(), volume);
        // Dropped without the lock.
        drop(before);
    }
}
