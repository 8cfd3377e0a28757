//! State of a mount as its records have it, for a process that goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;

use sfs_core::FileReferences;
use sfs_core::format::Timestamp;
use zerocopy::FromBytes;

use super::areas::StoredRecord;
use super::finished_syncs::Coverage;
use super::journal::{Journal, OpenedHandle};
use super::record::{Begun, EarlierReply, Given, Record};

/// Operations of `<linux/fuse.h>` with another inode than that in the head of the request.
const LINK: u32 = 13;
const TMPFILE: u32 = 51;

/// Everything that was recorded.
#[derive(Debug, Default)]
pub(crate) struct Survivors {
    /// References of the kernel, by inode.
    references: BTreeMap<u64, i64>,
    linkable: HashSet<u64>,
    /// Open handles, by inode and number.
    handles: BTreeMap<(u64, u64), u32>,
    /// Largest number that a handle has got.
    pub(super) last_handle: u64,
    /// Changes, in the order of their execution.
    pub(crate) changes: Vec<RecordedRequest>,
    replies: HashMap<u64, EarlierReply>,
    /// Changes that syncs have covered.
    coverage: Coverage,
    /// `true` if nothing may be written, as the mount is read-only since everything was written.
    is_resting: bool,
}

/// Change that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedRequest {
    /// Time and rights that it had.
    pub(crate) begun: Begun,
    /// The request, as the kernel has sent it.
    pub(crate) message: Vec<u8>,
    /// Reference and handle of the reply; `None` if the change was not completed.
    pub(crate) given: Option<Given>,
    /// Number of the error if the change was refused.
    pub(crate) refusal: Option<i32>,
    /// `true` if the log has what the change has done to the content of its file, since a sync has finished.
    pub(crate) is_content_synced: bool,
}

impl RecordedRequest {
    /// Returns whether the change was refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// Returns the inode in the head of the request.
    fn node(&self) -> u64 {
        self.word(16).unwrap_or(0)
    }

    fn word(&self, at: usize) -> Option<u64> {
        u64::read_from_bytes(self.message.get(at..at + 8)?).ok()
    }

    /// Returns the inodes that must be there when the change is repeated, and afterwards for later ones: that in the head of the
    /// request, the file that gets a name, and the one that was made without a name.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = u64> {
        let linked = if self.opcode() == Some(LINK) { self.word(40) } else { None };
        let all = [Some(self.node()), linked, self.unnamed()];
        all.into_iter().flatten().filter(|node| *node > 0)
    }

    /// Returns the file that the change has made without a name.
    fn unnamed(&self) -> Option<u64> {
        if self.opcode() == Some(TMPFILE) { self.given.map(|given| given.node) } else { None }
    }

    fn opcode(&self) -> Option<u32> {
        u32::read_from_bytes(self.message.get(4..8)?).ok()
    }
}

impl Survivors {
    /// Reads `records`, which are in their order.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a record that is unknown, or does not follow its own.
    pub(crate) fn read(records: Vec<StoredRecord>) -> io::Result<Self> {
        let mut survivors = Self::default();
        for record in records {
            let record = Record::decode(record).ok_or(io::ErrorKind::InvalidData)?;
            survivors.add(record).ok_or(io::ErrorKind::InvalidData)?;
        }
        for (at, change) in survivors.changes.iter_mut().enumerate() {
            change.is_content_synced = survivors.coverage.has_content(at, change.node());
        }
        Ok(survivors)
    }

    fn add(&mut self, record: Record) -> Option<()> {
        match record {
            Record::Request { begun, message } => {
                let change = RecordedRequest {
                    begun,
                    message,
                    given: None,
                    refusal: None,
                    is_content_synced: false,
                };
                self.changes.push(change);
                self.is_resting = false;
            }
            Record::Earlier(reply) => {
                self.replies.insert(reply.unique, reply);
            }
            Record::Reply { given, reply } => {
                let change = self.changes.last_mut().filter(|change| change.given.is_none())?;
                change.given = Some(given);
                let error = i32::read_from_bytes(reply.get(4..8)?).ok()?;
                change.refusal = (error != 0).then(|| error.wrapping_neg());
                if given.node > 0 {
                    *self.references.entry(given.node).or_default() += 1;
                }
                let Given { unique, synced, .. } = given;
                self.coverage.note_done(unique, self.changes.len());
                self.replies.insert(unique, EarlierReply { unique, synced, reply });
            }
            Record::AllFollow => {
                self.references.clear();
                self.linkable.clear();
                self.handles.clear();
            }
            Record::References(counts) => {
                for (ino, count) in counts {
                    let sum = self.references.entry(ino).or_default();
                    *sum = sum.saturating_add(count);
                }
            }
            Record::Linkable(files) => self.linkable.extend(files),
            Record::Opened { ino, number, flags } => {
                self.last_handle = self.last_handle.max(number);
                self.handles.insert((ino, number), flags);
            }
            Record::Released { ino, number } => {
                self.handles.remove(&(ino, number));
            }
            Record::Synced(sync) => self.coverage.add(sync),
            Record::Resting(is_resting) => self.is_resting = is_resting,
        }
        Some(())
    }

    /// Returns the inodes of the changes, which must not be deleted before all are repeated.
    pub(crate) fn changed_nodes(&self) -> BTreeSet<u64> {
        self.changes.iter().flat_map(RecordedRequest::nodes).collect()
    }

    /// Returns whether the kernel refers to inode `node`.
    pub(crate) fn is_referred(&self, node: u64) -> bool {
        self.references.get(&node).is_some_and(|count| *count > 0)
    }

    /// Returns the references that the kernel has, and one more to each of `held`.
    pub(crate) fn references(&self, held: &BTreeSet<u64>) -> Vec<FileReferences> {
        let mut counts = self.references.clone();
        held.iter().for_each(|node| {
            let count = counts.entry(*node).or_default();
            *count = (*count).max(0) + 1;
        });
        let unnamed: HashSet<_> =
            self.changes.iter().filter_map(RecordedRequest::unnamed).collect();
        let of_file = |(ino, count): (u64, i64)| FileReferences {
            ino,
            count: u64::try_from(count).unwrap_or(0),
            is_linkable: self.linkable.contains(&ino) || unnamed.contains(&ino),
        };
        counts.into_iter().map(of_file).collect()
    }

    /// Returns the handles that are open.
    pub(super) fn handles(&self) -> Vec<OpenedHandle> {
        self.handles.iter().map(|(&(ino, number), &flags)| (ino, number, flags)).collect()
    }

    /// Returns the number of changes, from the first one on, whose names and attributes are in the log since a sync has finished.
    pub(super) fn synced_changes(&self) -> usize {
        self.coverage.changes()
    }

    /// Returns the number of the last request whose change is done; 0 for none.
    pub(super) fn last_done(&self) -> u64 {
        let given = self.changes.iter().rev().find_map(|change| change.given);
        given.map_or(0, |given| given.unique)
    }

    /// Returns whether nothing has to be written, and nothing may be.
    pub(super) fn is_resting(&self) -> bool {
        self.is_resting && self.changes.is_empty()
    }

    /// Returns the latest time of a change.
    pub(crate) fn last_time(&self) -> Timestamp {
        self.changes.iter().map(|change| change.begun.now).max().unwrap_or_default()
    }

    /// Forgets the replies to requests.
    pub(super) fn forget_replies(&mut self) {
        self.replies.clear();
    }

    /// Gives `journal` the replies that the kernel may ask for again.
    pub(crate) fn hand_replies_to(&mut self, journal: &Journal) {
        journal.set_earlier(std::mem::take(&mut self.replies));
    }
}
