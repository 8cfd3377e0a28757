//! The files of a volume that the kernel refers to, and those whose attributes or content it may have in its cache, where another machine
//! changes the volume.
//!
//! A volume counts references for itself. Here they are counted for all states of a volume together, so that none is lost or counted twice
//! when a request ends on one state and the next begins on another.

use std::collections::HashMap;

use parking_lot::Mutex;
use sfs_core::FileReferences;

/// The files that the kernel knows.
#[derive(Debug, Default)]
pub(super) struct KernelReferences(Mutex<HashMap<u64, KnownFile>>);

#[derive(Clone, Copy, Debug, Default)]
struct KnownFile {
    /// References of the kernel; the root has none, and is known always.
    count: u64,
    /// `true` if the kernel was told of the file since the last [`KernelReferences::take_told`].
    is_told: bool,
}

impl KernelReferences {
    /// Notes that the kernel gets a reference to each of these inodes, with their attributes.
    pub(super) fn refer(&self, inodes: impl IntoIterator<Item = u64>) {
        let mut files = self.0.lock();
        for ino in inodes {
            let file = files.entry(ino).or_default();
            file.count += 1;
            file.is_told = true;
        }
    }

    /// Notes that the kernel gives references back.
    pub(super) fn forget(&self, inodes: impl IntoIterator<Item = (u64, u64)>) {
        let mut files = self.0.lock();
        for (ino, count) in inodes {
            if let Some(file) = files.get_mut(&ino) {
                file.count = file.count.saturating_sub(count);
                if file.count == 0 {
                    files.remove(&ino);
                }
            }
        }
    }

    /// Notes that the kernel is about to get attributes or content of inode `ino`.
    pub(super) fn tell(&self, ino: u64) {
        self.0.lock().entry(ino).or_default().is_told = true;
    }

    /// Returns the inodes of which the kernel was told since the last call: it can have old attributes and content of no others.
    pub(super) fn take_told(&self) -> Vec<u64> {
        let mut files = self.0.lock();
        let mut told = Vec::new();
        files.retain(|ino, file| {
            if std::mem::take(&mut file.is_told) {
                told.push(*ino);
            }
            file.count > 0
        });
        told
    }

    /// Returns all references.
    pub(super) fn all(&self) -> Vec<FileReferences> {
        let files = self.0.lock();
        let referenced = files.iter().filter(|(_, file)| file.count > 0);
        let of_file = |(ino, file): (&u64, &KnownFile)| FileReferences {
            ino: *ino,
            count: file.count,
            is_linkable: false,
        };
        referenced.map(of_file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(known: &KernelReferences) -> Vec<u64> {
        let mut told = known.take_told();
        told.sort_unstable();
        told
    }

    #[test]
    fn an_inode_is_told_once_and_forgotten_with_its_last_reference() {
        let known = KernelReferences::default();
        known.tell(1);
        known.refer([7, 8, 7]);
        assert_eq!(told(&known), [1, 7, 8]);
        assert_eq!(told(&known), [0; 0], "nothing was told since");
        known.tell(7);
        known.forget([(7, 1), (8, 1), (99, 5)]);
        assert_eq!(told(&known), [7]);
        let all = known.all();
        assert_eq!(all.iter().map(|of| (of.ino, of.count)).collect::<Vec<_>>(), [(7, 1)]);
        known.forget([(7, 1)]);
        assert!(known.all().is_empty());
        known.tell(1);
        assert_eq!(told(&known), [1], "the root has no references");
    }
}
