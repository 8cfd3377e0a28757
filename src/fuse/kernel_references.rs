//! The files of a volume that the kernel refers to, and those whose attributes or content it may have in its cache, where another machine
//! changes the volume.
//!
//! A volume counts references for itself. Here they are counted for all states of a volume together, so that none is lost or counted twice
//! when a request ends on one state and the next begins on another.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sfs_core::FileReferences;

/// Time after which a read is one that waits for the store.
const READ_WAITS_AFTER: Duration = Duration::from_millis(100);

/// The files that the kernel knows.
#[derive(Debug, Default)]
pub(super) struct KernelReferences(Mutex<HashMap<u64, KnownFile>>);

#[derive(Debug, Default)]
struct KnownFile {
    /// References of the kernel; the root has none, and is known always.
    count: u64,
    /// The first state of which the kernel may have attributes or content.
    told_by: Option<u64>,
    /// When the reads began that are under way.
    reads: Vec<Instant>,
    /// When [`KernelReferences::take_told`] has first left the file out, as it was read.
    left_out: Option<Instant>,
}

impl KnownFile {
    fn tell(&mut self, number: u64) {
        self.told_by = Some(self.told_by.map_or(number, |first| first.min(number)));
    }

    /// Returns whether the kernel would wait for a read that may take long: it has locked the pages.
    fn is_busy(&mut self, now: Instant) -> bool {
        let Some(first) = self.reads.iter().min() else { return false };
        let left_out = *self.left_out.get_or_insert(now);
        now - *first >= READ_WAITS_AFTER || now - left_out < READ_WAITS_AFTER
    }

    fn is_known(&self) -> bool {
        self.count > 0 || self.told_by.is_some() || !self.reads.is_empty()
    }
}

/// A read that is under way.
pub(super) struct Reading<'a> {
    references: &'a KernelReferences,
    ino: u64,
    begun: Instant,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.references.0.lock().get_mut(&self.ino)
            && let Some(place) = file.reads.iter().position(|begun| *begun == self.begun)
        {
            file.reads.swap_remove(place);
        }
    }
}

impl KernelReferences {
    /// Notes that the kernel gets a reference to each of these inodes, with their attributes in state `number`.
    pub(super) fn refer(&self, inodes: impl IntoIterator<Item = u64>, number: u64) {
        let mut files = self.0.lock();
        for ino in inodes {
            let file = files.entry(ino).or_default();
            file.count += 1;
            file.tell(number);
        }
    }

    /// Notes that a read of inode `ino` is under way as long as the value lives.
    pub(super) fn read(&self, ino: u64) -> Reading<'_> {
        let begun = Instant::now();
        self.0.lock().entry(ino).or_default().reads.push(begun);
        Reading { references: self, ino, begun }
    }

    /// Notes that the kernel gives references back.
    pub(super) fn forget(&self, inodes: impl IntoIterator<Item = (u64, u64)>) {
        let mut files = self.0.lock();
        for (ino, count) in inodes {
            if let Some(file) = files.get_mut(&ino) {
                file.count = file.count.saturating_sub(count);
                if file.count == 0 && file.reads.is_empty() {
                    files.remove(&ino);
                }
            }
        }
    }

    /// Notes that the kernel is about to get attributes or content of inode `ino` in state `number`.
    pub(super) fn tell(&self, ino: u64, number: u64) {
        self.0.lock().entry(ino).or_default().tell(number);
    }

    /// Takes the inodes of which the kernel may have something of a state before `number`. Those that are being read are left out
    /// while that may take long; then the result is `false` as well.
    pub(super) fn take_told(&self, number: u64) -> (Vec<u64>, bool) {
        let now = Instant::now();
        let (mut told, mut are_all) = (Vec::new(), true);
        self.0.lock().retain(|ino, file| {
            if file.told_by.is_some_and(|first| first < number) {
                if file.is_busy(now) {
                    are_all = false;
                } else {
                    told.push(*ino);
                    (file.told_by, file.left_out) = (None, None);
                }
            }
            file.is_known()
        });
        (told, are_all)
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

    fn told(known: &KernelReferences, number: u64) -> (Vec<u64>, bool) {
        let (mut told, are_all) = known.take_told(number);
        told.sort_unstable();
        (told, are_all)
    }

    #[test]
    fn what_earlier_states_told_is_taken_once() {
        let known = KernelReferences::default();
        known.tell(1, 1);
        known.refer([7, 8, 7], 1);
        assert_eq!(told(&known, 1), (vec![], true), "all is of the state of now");
        known.tell(7, 2);
        known.refer([9], 2);
        assert_eq!(told(&known, 2), (vec![1, 7, 8], true));
        assert_eq!(told(&known, 2), (vec![], true));
        known.forget([(7, 1), (8, 1), (99, 5)]);
        let all = known.all();
        let counts = all.iter().map(|of| (of.ino, of.count)).collect::<HashMap<_, _>>();
        assert_eq!(counts, HashMap::from([(7, 1), (9, 1)]));
        known.tell(7, 3);
        assert_eq!(told(&known, 4), (vec![7, 9], true), "state 2 told of 9 long ago");
        known.forget([(7, 1), (9, 1)]);
        assert!(known.all().is_empty());
        known.tell(1, 4);
        assert_eq!(told(&known, 5), (vec![1], true), "the root has no references");
    }

    /// The kernel waits for reads before it drops pages, and a thread that waits there cannot be killed.
    #[test]
    fn a_file_is_left_out_while_a_read_takes_long() {
        let known = KernelReferences::default();
        known.refer([7, 8], 1);
        let reading = known.read(7);
        assert_eq!(told(&known, 2), (vec![8], false), "it may take long");
        std::thread::sleep(READ_WAITS_AFTER);
        assert_eq!(told(&known, 2), (vec![], false), "it does");
        drop(reading);
        let short = known.read(7);
        assert_eq!(told(&known, 2), (vec![7], true), "reads that are short keep nothing old");
        drop(short);
        assert_eq!(told(&known, 2), (vec![], true));
    }
}
