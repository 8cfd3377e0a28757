//! Records: what a process that goes on has to know of its predecessor.

use sfs_core::format::Timestamp;
use sfs_fuse::{Errno, Reply};

use super::areas::StoredRecord;
use super::finished_syncs::FinishedSync;

/// Reply to a request, or the number of its error.
pub(super) type Outcome<B> = Result<Reply<B>, Errno>;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A change begins.
    Request { begun: Begun, message: Vec<u8> },
    /// The change that has begun last is done.
    Reply { given: Given, reply: Vec<u8> },
    /// A reply that an earlier process has recorded, and that the kernel may still ask for.
    Earlier(EarlierReply),
    /// All references and handles follow: those that were recorded before do not count.
    AllFollow,
    /// References that the kernel gets, or gives back if their number is negative.
    References(Vec<(u64, i64)>),
    /// Files that were made without a name, and may get one.
    Linkable(Vec<u64>),
    /// A handle is opened: inode, number, and the flags of open(2).
    Opened { ino: u64, number: u64, flags: u32 },
    /// A handle is closed: inode and number.
    Released { ino: u64, number: u64 },
    /// A sync has finished.
    Synced(FinishedSync),
    /// Nothing may be written any more (`true`), or something may again.
    Resting(bool),
}

/// Time of a change, and the state that it met, recorded with its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Time that its files get: another one than those of all earlier changes, but for a change that makes a file.
    pub(crate) now: Timestamp,
    /// State that the change met.
    pub(crate) before: Before,
}

/// State that a change depends on. It may be another one when the change is repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// `true` if the process that asked for the change may leave suid, sgid and capabilities of the file. It may have ended when the
    /// change is repeated.
    pub(crate) keeps_privileges: bool,
    /// Length of the file in bytes. Later changes that are in the log may have made it longer or shorter.
    pub(crate) size: u64,
    /// For a change that makes a file of whatever kind, the number that the file gets; 0 for all others.
    pub(crate) new_ino: u64,
}

/// Reply of an earlier process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EarlierReply {
    /// Number of the request.
    pub(crate) unique: u64,
    /// Inode that has to be synced before the reply; 0 for none.
    pub(crate) synced: u64,
    /// The whole reply.
    pub(crate) reply: Vec<u8>,
}

/// References and handles that the kernel gets with a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    /// Number of the request.
    pub(crate) unique: u64,
    /// Inode that the reply refers to; 0 for none.
    pub(crate) node: u64,
    /// Number of the handle that was opened; 0 for none.
    pub(crate) handle: u64,
    /// Inode that has to be synced before the reply; 0 for none.
    pub(crate) synced: u64,
}

impl Given {
    /// Returns what the kernel gets with the reply `result` to request `unique`.
    pub(crate) fn of(unique: u64, result: &Outcome<impl AsRef<[u8]>>) -> Self {
        let (node, handle) = match result {
            Ok(Reply::Entry(entry)) => (entry.node, 0),
            Ok(Reply::Created(entry, opened)) => (entry.node, opened.handle),
            Ok(Reply::Opened(opened)) => (0, opened.handle),
            _ => (0, 0),
        };
        Self { unique, node, handle, synced: 0 }
    }

    fn to_bytes(self) -> [u8; GIVEN_LEN] {
        let Self { unique, node, handle, synced } = self;
        words([unique, node, handle, synced])
    }
}

const REQUEST: u32 = 1;
const REPLY: u32 = 2;
const REFERENCES: u32 = 3;
const LINKABLE: u32 = 4;
const OPENED: u32 = 5;
const RELEASED: u32 = 6;
const ALL_FOLLOW: u32 = 7;
const EARLIER: u32 = 8;
const SYNCED: u32 = 9;
const RESTING: u32 = 10;

/// Length in bytes of a [`Begun`].
const BEGUN_LEN: usize = 32;

/// Length in bytes of a [`Given`].
const GIVEN_LEN: usize = 32;

/// Returns the bytes of `numbers`, one after another.
fn words<const N: usize, const LEN: usize>(numbers: [u64; N]) -> [u8; LEN] {
    const { assert!(LEN == 8 * N) };
    let mut bytes = [0; LEN];
    for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Returns the bytes of `first` and `second`, and those of `last`, which is shorter.
fn words_and_half(first: u64, second: u64, last: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(&words::<2, 16>([first, second]));
    bytes[16..].copy_from_slice(&last.to_le_bytes());
    bytes
}

/// Head of a record of kind [`REQUEST`].
pub(super) fn request_head(begun: Begun) -> (u32, [u8; BEGUN_LEN]) {
    let Begun { now, before } = begun;
    let flags = u64::from(before.keeps_privileges) << 32 | u64::from(now.nanos);
    (REQUEST, words([now.secs.cast_unsigned(), flags, before.size, before.new_ino]))
}

/// Record of a reply of an earlier process.
pub(super) fn earlier(of: &EarlierReply) -> (u32, Vec<u8>) {
    (EARLIER, [&of.unique.to_le_bytes()[..], &of.synced.to_le_bytes(), &of.reply].concat())
}

/// Head of a record of kind [`REPLY`].
pub(super) fn reply_head(given: Given) -> (u32, [u8; GIVEN_LEN]) {
    (REPLY, given.to_bytes())
}

/// Record in front of all references and handles.
pub(super) fn all_follow() -> (u32, Vec<u8>) {
    (ALL_FOLLOW, Vec::new())
}

/// Record of references to one inode.
pub(super) fn reference(ino: u64, count: i64) -> (u32, [u8; 16]) {
    (REFERENCES, words([ino, count.cast_unsigned()]))
}

/// Record of references.
pub(super) fn references(counts: impl IntoIterator<Item = (u64, i64)>) -> (u32, Vec<u8>) {
    let mut bytes = Vec::new();
    counts.into_iter().for_each(|(ino, count)| bytes.extend(reference(ino, count).1));
    (REFERENCES, bytes)
}

/// Record of files that may get a name.
pub(super) fn linkable(files: impl IntoIterator<Item = u64>) -> (u32, Vec<u8>) {
    (LINKABLE, files.into_iter().flat_map(u64::to_le_bytes).collect())
}

/// Record of an open handle.
pub(super) fn opened(ino: u64, number: u64, flags: u32) -> (u32, [u8; 20]) {
    (OPENED, words_and_half(ino, number, flags))
}

/// Record of a sync that has finished.
pub(super) fn synced(of: FinishedSync) -> (u32, [u8; 20]) {
    let FinishedSync { ino, last, data_only } = of;
    (SYNCED, words_and_half(ino, last, u32::from(data_only)))
}

/// Record of the beginning or the end of a rest.
pub(super) fn resting(is_resting: bool) -> (u32, Vec<u8>) {
    (RESTING, vec![u8::from(is_resting)])
}

/// Record of a closed handle.
pub(super) fn released(ino: u64, number: u64) -> (u32, [u8; 16]) {
    (RELEASED, words([ino, number]))
}

impl Record {
    /// Decodes a record; `None` for one that no program of this version has written.
    pub(super) fn decode((kind, bytes): StoredRecord) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(match kind {
            REQUEST => Self::Request {
                begun: Begun {
                    now: Timestamp { secs: word(0)?.cast_signed(), nanos: half(8)? },
                    before: Before {
                        keeps_privileges: half(12)? != 0,
                        size: word(16)?,
                        new_ino: word(24)?,
                    },
                },
                message: bytes.get(BEGUN_LEN..)?.to_vec(),
            },
            REPLY => {
                let (unique, node, handle) = (word(0)?, word(8)?, word(16)?);
                let given = Given { unique, node, handle, synced: word(24)? };
                Self::Reply { given, reply: bytes.get(GIVEN_LEN..)?.to_vec() }
            }
            EARLIER => Self::Earlier(EarlierReply {
                unique: word(0)?,
                synced: word(8)?,
                reply: bytes.get(16..)?.to_vec(),
            }),
            REFERENCES => {
                let ats = (0..bytes.len()).step_by(16);
                let counts = ats.map(|at| Some((word(at)?, word(at + 8)?.cast_signed())));
                Self::References(counts.collect::<Option<_>>()?)
            }
            LINKABLE => {
                Self::Linkable((0..bytes.len()).step_by(8).map(word).collect::<Option<_>>()?)
            }
            OPENED => Self::Opened { ino: word(0)?, number: word(8)?, flags: half(16)? },
            ALL_FOLLOW => Self::AllFollow,
            RELEASED => Self::Released { ino: word(0)?, number: word(8)? },
            RESTING => Self::Resting(*bytes.first()? != 0),
            SYNCED => Self::Synced(FinishedSync {
                ino: word(0)?,
                last: word(8)?,
                data_only: half(16)? != 0,
            }),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_decoded_as_they_were_encoded() {
        let now = Timestamp { secs: -5, nanos: 999_999_999 };
        let begun = Begun { now, before: Before { keeps_privileges: true, size: 7, new_ino: 8 } };
        let given = Given { unique: 2, node: 3, handle: 4, synced: 5 };
        fn body((kind, head): (u32, impl AsRef<[u8]>), rest: &[u8]) -> Record {
            Record::decode((kind, [head.as_ref(), rest].concat())).expect("a record")
        }
        let message = b"message".to_vec();
        assert_eq!(body(request_head(begun), &message), Record::Request { begun, message });
        let reply = b"reply".to_vec();
        let of_earlier = EarlierReply { unique: 6, synced: 7, reply: reply.clone() };
        assert_eq!(body(earlier(&of_earlier), b""), Record::Earlier(of_earlier));
        assert_eq!(body(reply_head(given), &reply), Record::Reply { given, reply });
        let counts = vec![(7, 2), (8, -3)];
        assert_eq!(body(reference(7, 2), b""), Record::References(vec![(7, 2)]));
        assert_eq!(body(references(counts.clone()), b""), Record::References(counts));
        assert_eq!(body(linkable([5, 6]), b""), Record::Linkable(vec![5, 6]));
        assert_eq!(body(all_follow(), b""), Record::AllFollow);
        let expected = Record::Opened { ino: 1, number: 2, flags: 3 };
        assert_eq!(body(opened(1, 2, 3), b""), expected);
        assert_eq!(body(released(1, 2), b""), Record::Released { ino: 1, number: 2 });
        let sync = FinishedSync { ino: 3, last: 4, data_only: true };
        assert_eq!(body(synced(sync), b""), Record::Synced(sync));
        assert_eq!(body(resting(true), b""), Record::Resting(true));
        assert_eq!(body(resting(false), b""), Record::Resting(false));
        for wrong in [(0, Vec::new()), (REFERENCES, vec![0; 15]), (REQUEST, vec![0; 31])] {
            assert_eq!(Record::decode(wrong), None);
        }
    }
}
