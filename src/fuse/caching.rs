//! How long the kernel may keep names and attributes.
//!
//! Only this mount changes the volume, so they stay valid, except in two cases. Beside the writer of a volume in an object store they are
//! those of a state that newer ones follow. And after the death of a daemon where the kernel does not send requests
//! again, a change whose reply has not arrived has ended with an error for its program, and may be done, and nobody knows of
//! which one that is true: the kernel goes on with the names and attributes before it. So it keeps all of them for a short time
//! only. No notification is sent instead: one that invalidates a name waits in the kernel for the lock of the directory, and a
//! daemon that is killed meanwhile would never end, as the program with the lock waits for that end.

use std::time::{Duration, Instant};

use sfs_fuse::NodeEntry;

use super::inode_attributes;

/// Time for which names and attributes stay valid.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// The same where they may be those before a change that was done.
const SHORT: Duration = Duration::from_secs(1);

/// Time for which the kernel may cache names and attributes.
#[derive(Clone, Debug, Default)]
pub(super) struct Caching {
    /// `true` if the kernel sends no request again, or another machine changes the volume.
    pub(super) is_short: bool,
    /// Time at which another daemon was found to have died.
    pub(super) revived: Option<Instant>,
}

impl Caching {
    /// Returns the time for which a reply is valid.
    pub(super) fn ttl(&self) -> Duration {
        if self.is_short { SHORT } else { LONG }
    }

    /// Returns the reply that a name does not exist: inode number 0, which the kernel may cache.
    pub(super) fn absent(&self) -> NodeEntry {
        NodeEntry {
            node: 0,
            generation: 0,
            name_ttl: self.ttl(),
            attributes_ttl: self.ttl(),
            attributes: inode_attributes::NONE,
        }
    }

    /// Returns whether the kernel may have names from before the death of another daemon.
    pub(super) fn has_old_names(&self, now: Instant) -> bool {
        let is_recent = |revived| now.duration_since(revived) < 2 * SHORT;
        self.is_short && self.revived.is_some_and(is_recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_old_until_the_kernel_has_asked_for_all() {
        let revived = Instant::now();
        assert!(!Caching::default().has_old_names(revived), "no daemon has died");
        let caching = Caching { is_short: true, revived: Some(revived) };
        assert!(caching.has_old_names(revived + caching.ttl()));
        assert!(!caching.has_old_names(revived + 2 * caching.ttl()));
    }
}
