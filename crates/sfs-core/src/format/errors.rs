//! Remembered errors of a volume, counted by kind: extension 1 of a checkpoint.

use std::fmt;

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::calendar::UtcTime;
use super::extension::ERRORS_TAG;
use super::{
    CheckpointRecord, ErrorKind, Extension, ExtensionClass, Extensions, Failure, Superblock,
};

/// Maximum number of kinds in a record.
pub const ERROR_KINDS_MAX: usize = 64;

/// Time and place of an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occurrence {
    /// Time, in seconds since 1970.
    pub secs: i64,
    /// Block, inode or segment, by the kind of the error; 0 if no place is known.
    pub at: u64,
}

/// The errors of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCount {
    /// The kind.
    pub kind: ErrorKind,
    /// Number of errors; never 0.
    pub count: u64,
    /// The first of them.
    pub first: Occurrence,
    /// The last of them.
    pub last: Occurrence,
}

/// Errors by kind, ascending by the codes of the kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts(Vec<ErrorCount>);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCount {
    kind: U32,
    reserved: U32,
    count: U64,
    first_secs: I64,
    first_at: U64,
    last_secs: I64,
    last_at: U64,
}

const RAW_LEN: usize = 48;
const _: () = assert!(size_of::<RawCount>() == RAW_LEN);

impl ErrorCounts {
    /// Tag of the record in the extension area of a checkpoint.
    pub const TAG: u16 = ERRORS_TAG;

    /// Counts an error of `kind` and returns whether it is the first. A new kind is not counted if the record is full.
    pub fn note(&mut self, kind: ErrorKind, occurrence: Occurrence) -> bool {
        match self.0.binary_search_by_key(&kind.code(), |count| count.kind.code()) {
            Ok(index) => {
                let count = &mut self.0[index];
                count.count = count.count.saturating_add(1);
                count.last = occurrence;
                false
            }
            Err(_) if self.0.len() >= ERROR_KINDS_MAX => false,
            Err(index) => {
                let (first, last) = (occurrence, occurrence);
                self.0.insert(index, ErrorCount { kind, count: 1, first, last });
                true
            }
        }
    }

    /// Returns the kinds that occurred, ascending by their codes.
    pub fn iter(&self) -> impl Iterator<Item = &ErrorCount> {
        self.0.iter()
    }

    /// Returns whether there was no error.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many errors of `kind` there were.
    pub fn count(&self, kind: ErrorKind) -> u64 {
        self.0.iter().find(|count| count.kind == kind).map_or(0, |count| count.count)
    }

    /// Keeps the kinds for which `is_kept` holds.
    pub fn retain(&mut self, mut is_kept: impl FnMut(ErrorKind) -> bool) {
        self.0.retain(|count| is_kept(count.kind));
    }

    /// Returns the content of the record.
    pub fn encode(&self) -> Vec<u8> {
        let raw = |count: &ErrorCount| RawCount {
            kind: count.kind.code().into(),
            reserved: U32::ZERO,
            count: count.count.into(),
            first_secs: count.first.secs.into(),
            first_at: count.first.at.into(),
            last_secs: count.last.secs.into(),
            last_at: count.last.at.into(),
        };
        self.0.iter().flat_map(|count| raw(count).as_bytes().to_vec()).collect()
    }

    /// Decodes the content of a record; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let raw = <[RawCount]>::ref_from_bytes(bytes).ok()?;
        let ascends = raw.windows(2).all(|pair| pair[0].kind.get() < pair[1].kind.get());
        let is_sound =
            |raw: &RawCount| raw.kind.get() != 0 && raw.reserved.get() == 0 && raw.count.get() != 0;
        if raw.len() > ERROR_KINDS_MAX || !ascends || !raw.iter().all(is_sound) {
            return None;
        }
        let count = |raw: &RawCount| ErrorCount {
            kind: ErrorKind::of_code(raw.kind.get()),
            count: raw.count.get(),
            first: Occurrence { secs: raw.first_secs.get(), at: raw.first_at.get() },
            last: Occurrence { secs: raw.last_secs.get(), at: raw.last_at.get() },
        };
        Some(Self(raw.iter().map(count).collect()))
    }

    /// Returns the errors in a checkpoint's `extensions`; `None` if their record is malformed.
    pub fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get(Self::TAG).map_or(Some(Self::default()), Self::decode)
    }

    /// Sets the record in `extensions`, or removes it if there was no error or the other records leave no room.
    pub fn put_into(&self, extensions: &mut Extensions) {
        extensions.remove(Self::TAG);
        if !self.is_empty() {
            let class = ExtensionClass::Keep;
            extensions.set_if_room(Extension { tag: Self::TAG, class, bytes: self.encode() });
        }
    }
}

/// The errors that a volume remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Errors by kind.
    pub errors: ErrorCounts,
    /// The error that ended writing.
    pub failure: Option<Failure>,
    /// `true` if the record of the errors is malformed.
    pub is_damaged: bool,
}

impl Remembered {
    /// Returns the errors in `superblock` and the checkpoint `record`.
    pub fn of(superblock: &Superblock, record: &CheckpointRecord) -> Self {
        let errors = ErrorCounts::of(&record.extensions);
        let is_damaged = errors.is_none();
        Self { errors: errors.unwrap_or_default(), failure: superblock.failure, is_damaged }
    }

    /// Returns whether no error is remembered.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty() && self.failure.is_none() && !self.is_damaged
    }

    /// Returns the errors that remain after a check without findings; `data` is `true` if the check
    /// read all data.
    pub fn after_check(&self, data: bool) -> Self {
        let mut left = Self { failure: None, is_damaged: false, ..self.clone() };
        left.errors.retain(|kind| !data && kind.concerns_data());
        left
    }
}

impl fmt::Display for ErrorCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, count, first, last } = *self;
        if count == 1 {
            return write!(f, "{}: {}", kind.words(), At(kind, first));
        }
        let (first, last) = (At(kind, first), At(kind, last));
        write!(f, "{}, {count} times: {first}, the last {last}", kind.words())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, at, secs } = *self;
        write!(f, "{}: {}", kind.words(), At(kind, Occurrence { secs, at }))
    }
}

/// Place and time of an error, for people.
struct At(ErrorKind, Occurrence);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, Occurrence { secs, at }) = *self;
        if at != 0 || kind.place() == "segment" {
            write!(f, "{} {at} ", kind.place())?;
        }
        write!(f, "at {}", UtcTime(secs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_printed_for_people() {
        let mut counts = ErrorCounts::default();
        counts.note(ErrorKind::Data, Occurrence { secs: 951_782_400, at: 77 });
        let printed = |counts: &ErrorCounts| counts.iter().next().map(ToString::to_string);
        let once = "wrong checksum of data: block 77 at 2000-02-29 00:00:00 UTC";
        assert_eq!(printed(&counts).as_deref(), Some(once));
        counts.note(ErrorKind::Data, Occurrence { secs: -1, at: 78 });
        let twice = "wrong checksum of data, 2 times: block 77 at 2000-02-29 00:00:00 UTC, \
                     the last block 78 at 1969-12-31 23:59:59 UTC";
        assert_eq!(printed(&counts).as_deref(), Some(twice));
        let failure = Failure { kind: ErrorKind::Flush, at: 0, secs: 1_700_000_000 };
        let flush = "flush that the device failed: at 2023-11-14 22:13:20 UTC";
        assert_eq!(failure.to_string(), flush);
        let never = Failure { secs: i64::MIN, ..failure };
        assert!(!never.to_string().is_empty(), "however it was forged");
    }

    const EARLY: Occurrence = Occurrence { secs: -5, at: 9 };
    const LATE: Occurrence = Occurrence { secs: 7, at: 11 };

    #[test]
    fn errors_are_counted_by_kind_with_the_first_and_the_last() {
        let mut counts = ErrorCounts::default();
        assert!(counts.note(ErrorKind::Data, EARLY));
        assert!(!counts.note(ErrorKind::Data, LATE));
        assert!(counts.note(ErrorKind::Write, LATE));
        let kinds: Vec<_> = counts.iter().map(|count| count.kind).collect();
        assert_eq!(kinds, [ErrorKind::Write, ErrorKind::Data]);
        let data = ErrorCount { kind: ErrorKind::Data, count: 2, first: EARLY, last: LATE };
        assert_eq!(counts.iter().nth(1), Some(&data));
        assert_eq!(ErrorCounts::decode(&counts.encode()), Some(counts));
    }

    #[test]
    fn kinds_of_a_newer_program_are_kept() {
        let mut counts = ErrorCounts::default();
        counts.note(ErrorKind::Unknown(900), EARLY);
        let mut again = ErrorCounts::decode(&counts.encode()).expect("a record");
        again.note(ErrorKind::Read, LATE);
        assert_eq!(again.count(ErrorKind::Unknown(900)), 1);
        for code in 1..=13 {
            assert_eq!(ErrorKind::of_code(code).code(), code);
        }
        for name in (1..=12).filter_map(|code| ErrorKind::of_code(code).name()) {
            assert_eq!(ErrorKind::of_name(name).and_then(ErrorKind::name), Some(name));
        }
    }

    #[test]
    fn hostile_bytes_are_no_record() {
        let mut counts = ErrorCounts::default();
        counts.note(ErrorKind::Data, EARLY);
        let bytes = counts.encode();
        assert_eq!(ErrorCounts::decode(&bytes[..bytes.len() - 1]), None, "the record is cut off");
        assert_eq!(ErrorCounts::decode(&[&bytes[..], &bytes[..]].concat()), None, "twice the same");
        for at in [0, 4, 8] {
            let mut wrong = bytes.clone();
            wrong[at] = if at == 4 { 1 } else { 0 };
            assert_eq!(ErrorCounts::decode(&wrong), None, "byte {at}");
        }
        let many: Vec<u8> =
            (1..=65u32).flat_map(|code| [&code.to_le_bytes()[..], &bytes[4..]].concat()).collect();
        assert_eq!(ErrorCounts::decode(&many), None, "more kinds than allowed");
        let mut full = ErrorCounts::decode(&many[RAW_LEN..]).expect("the maximum of kinds");
        assert!(!full.note(ErrorKind::Write, LATE), "there is no room");
        assert_eq!(ErrorCounts::decode(&[]), Some(ErrorCounts::default()));
    }

    #[test]
    fn a_record_without_room_is_left_out() {
        let mut counts = ErrorCounts::default();
        counts.note(ErrorKind::Data, EARLY);
        let mut extensions = Extensions::default();
        let bytes = vec![0; super::super::EXTENSION_LEN_MAX - 16 - RAW_LEN];
        extensions.set(Extension { tag: 900, class: ExtensionClass::Keep, bytes });
        counts.put_into(&mut extensions);
        assert_eq!(ErrorCounts::of(&extensions), Some(counts.clone()), "the record fits exactly");
        counts.note(ErrorKind::Write, EARLY);
        counts.put_into(&mut extensions);
        assert_eq!(ErrorCounts::of(&extensions), Some(ErrorCounts::default()));
    }

    #[test]
    fn a_check_without_data_keeps_errors_of_data() {
        let mut remembered = Remembered { is_damaged: true, ..Remembered::default() };
        for kind in [ErrorKind::Data, ErrorKind::Tree, ErrorKind::Read] {
            remembered.errors.note(kind, EARLY);
        }
        let left = remembered.after_check(false);
        let kinds: Vec<_> = left.errors.iter().map(|count| count.kind).collect();
        assert_eq!(kinds, [ErrorKind::Read, ErrorKind::Data]);
        assert!(!left.is_damaged);
        assert!(remembered.after_check(true).is_empty());
    }
}
