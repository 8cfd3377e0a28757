//! The entries of the usage table: state and sums of one segment each.
//!
//! The transitions between the states are in `segments/usage_table.rs`.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Corruption, CorruptionKind, Group, Head, ItemKind, Key};

/// Number of segments whose entries share one item.
pub const USAGE_PER_ITEM: u32 = 32;

/// Returns the key of the item with the entry of `segment`.
pub fn usage_key(segment: u32) -> Key {
    Key::new(0, ItemKind::Usage, u64::from(segment / USAGE_PER_ITEM))
}

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SegmentState {
    /// Holds nothing that is needed; may be opened.
    Clean = 1,
    /// A head appends to the segment.
    Open = 2,
    /// Takes no more appends; holds live blocks, or waits to be drained.
    Sealed = 3,
    /// Holds no live block, but recovery may still need it.
    Drained = 4,
    /// Must not be used. No program sets this state yet.
    Bad = 5,
    /// Holds file data that is overwritten in place; the log does not write to it. `docs/FORMAT.md`
    /// calls this state Placed.
    InPlace = 6,
}

impl fmt::Display for SegmentState {
    /// Writes the word of `docs/FORMAT.md`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clean => "Clean",
            Self::Open => "Open",
            Self::Sealed => "Sealed",
            Self::Drained => "Drained",
            Self::Bad => "Bad",
            Self::InPlace => "Placed",
        })
    }
}

impl SegmentState {
    fn decode(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Clean,
            2 => Self::Open,
            3 => Self::Sealed,
            4 => Self::Drained,
            5 => Self::Bad,
            6 => Self::InPlace,
            _ => return None,
        })
    }
}

/// The usage of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageEntry {
    /// Number of blocks to which the tree refers, tree nodes included; summaries and deltas do not
    /// count.
    pub live_blocks: u32,
    /// State of the segment.
    pub state: SegmentState,
    /// Head that wrote the segment: that of group 0 for an InPlace one.
    pub head: Head,
    /// Sum of the write counts of the segment's live data blocks ([`super::History::write_count`]).
    pub write_count_sum: u64,
    /// Sum of the modification times of the segment's live data blocks, in ticks.
    pub modified_sum: u64,
    /// Time of the last opening, in ticks.
    pub opened: u32,
    /// Time of the last sealing, in ticks; 0 while the segment is Open.
    pub sealed: u32,
    /// Sequence number of a chunk, with a meaning by state. Clean and Drained: the chunk at which the last block died;
    /// Clean segments are opened in the order of this number, then of the segment number. Open, Sealed and InPlace:
    /// the chunk at which the segment was opened.
    pub stamp: u64,
    /// Erase cycles: number of times that the segment was taken into use, and in a segment of data in place once more for
    /// as many overwritten blocks as it has. The count ends at [`ERASES_MAX`].
    pub erases: u16,
}

/// Highest count of erase cycles.
pub const ERASES_MAX: u16 = u16::MAX;

/// Length of an encoded entry in bytes.
const RAW_LEN: usize = 40;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawUsage {
    live_blocks: U32,
    state: u8,
    group: u8,
    erases: U16,
    write_count_sum: U64,
    modified_sum: U64,
    opened: U32,
    sealed: U32,
    stamp: U64,
}

const _: () = assert!(size_of::<RawUsage>() == RAW_LEN);
const _: () = assert!(size_of::<UsageEntry>() <= 64);

impl UsageEntry {
    /// The entry of a segment that was never written.
    pub const NEW: Self = Self {
        live_blocks: 0,
        state: SegmentState::Clean,
        head: Head::METADATA,
        write_count_sum: 0,
        modified_sum: 0,
        opened: 0,
        sealed: 0,
        stamp: 0,
        erases: 0,
    };

    /// Returns the group of the segment's data; `None` for a segment of tree nodes.
    pub fn data_group(&self) -> Option<Group> {
        self.head.group()
    }

    /// Returns the value of an item with `entries`, at most [`USAGE_PER_ITEM`].
    pub fn encode_item(entries: &[Self]) -> Vec<u8> {
        let mut value = Vec::with_capacity(entries.len() * RAW_LEN);
        for entry in entries {
            let raw = RawUsage {
                live_blocks: entry.live_blocks.into(),
                state: entry.state as u8,
                group: entry.head.0,
                erases: entry.erases.into(),
                write_count_sum: entry.write_count_sum.into(),
                modified_sum: entry.modified_sum.into(),
                opened: entry.opened.into(),
                sealed: entry.sealed.into(),
                stamp: entry.stamp.into(),
            };
            value.extend_from_slice(raw.as_bytes());
        }
        value
    }

    /// Decodes the item of the segments from `first` on.
    pub fn decode_item(value: &[u8], first: u32) -> Result<Vec<Self>, Corruption> {
        let wrong = |kind| Corruption::in_usage_entry(first, kind);
        let raws =
            <[RawUsage]>::ref_from_bytes(value).map_err(|_| wrong(CorruptionKind::Length))?;
        if raws.len() > USAGE_PER_ITEM as usize {
            return Err(wrong(CorruptionKind::Length));
        }
        let decode = |raw: &RawUsage| {
            Some(Self {
                live_blocks: raw.live_blocks.get(),
                state: SegmentState::decode(raw.state)?,
                head: Head(raw.group),
                write_count_sum: raw.write_count_sum.get(),
                modified_sum: raw.modified_sum.get(),
                opened: raw.opened.get(),
                sealed: raw.sealed.get(),
                stamp: raw.stamp.get(),
                erases: raw.erases.get(),
            })
        };
        raws.iter().map(decode).collect::<Option<_>>().ok_or(wrong(CorruptionKind::Value))
    }
}
