//! Reservations: ranges of unwritten blocks for which the volume keeps space.
//!
//! A range is one tree item, whose key has the first block and whose value has the last one. The totals over all files
//! are in each checkpoint, so that a mount need not read the items.

use super::extension::RESERVATIONS_TAG;
use super::{COUNT_KEPT_MAX, Corruption, CorruptionKind, ItemKind, Key};
use super::{Extension, ExtensionClass, Extensions};

/// A range of reserved blocks of a file. None of them is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// First block of the range.
    pub first: u32,
    /// Last block of the range, not below `first`.
    pub last: u32,
}

impl Reservation {
    /// Length of an encoded range in bytes.
    pub const LEN: usize = 4;

    /// Returns the key of the item for the range of `ino` that begins with block `first`.
    pub fn key_of(ino: u64, first: u32) -> Key {
        Key::new(ino, ItemKind::Reservation, first.into())
    }

    /// Returns the key of the item for this range of `ino`.
    pub fn key(self, ino: u64) -> Key {
        Self::key_of(ino, self.first)
    }

    /// Returns the item's value.
    pub fn encode(self) -> [u8; Self::LEN] {
        self.last.to_le_bytes()
    }

    /// Decodes the item at `key`.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the item is no range of blocks of a file.
    pub fn decode(key: &Key, value: &[u8]) -> Result<Self, Corruption> {
        let wrong = |kind| Corruption::in_item(key.ino, kind);
        let last = value.try_into().map_err(|_| wrong(CorruptionKind::Length))?;
        let first = u32::try_from(key.offset).map_err(|_| wrong(CorruptionKind::Value))?;
        let range = Self { first, last: u32::from_le_bytes(last) };
        if range.first <= range.last { Ok(range) } else { Err(wrong(CorruptionKind::Value)) }
    }

    /// Returns the number of blocks in the range.
    pub fn blocks(self) -> u64 {
        u64::from(self.last) - u64::from(self.first) + 1
    }

    /// Returns whether `block` is in the range.
    pub fn contains(self, block: u32) -> bool {
        (self.first..=self.last).contains(&block)
    }
}

/// Totals of the reservations of all files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationTotals {
    /// Number of reserved blocks.
    pub blocks: u64,
    /// Number of ranges, each an item.
    pub ranges: u64,
}

impl ReservationTotals {
    /// Returns the totals in `extensions`: zero without a record, `None` if the record is malformed.
    pub fn of(extensions: &Extensions) -> Option<Self> {
        let Some(bytes) = extensions.get(RESERVATIONS_TAG) else { return Some(Self::default()) };
        let (blocks, ranges) = bytes.split_first_chunk()?;
        let totals = Self {
            blocks: u64::from_le_bytes(*blocks),
            ranges: u64::from_le_bytes(ranges.try_into().ok()?),
        };
        (totals.blocks < COUNT_KEPT_MAX && totals.ranges < COUNT_KEPT_MAX).then_some(totals)
    }

    /// Sets the record in `extensions`; without reservations there is none. A program that does not know the record
    /// must not write to the volume: it would give the space away.
    pub fn put_into(self, extensions: &mut Extensions) {
        if self == Self::default() {
            return extensions.remove(RESERVATIONS_TAG);
        }
        let bytes = [self.blocks.to_le_bytes(), self.ranges.to_le_bytes()].concat();
        let class = ExtensionClass::ReadOnly;
        extensions.set_if_room(Extension { tag: RESERVATIONS_TAG, class, bytes });
    }

    /// Adds a range.
    pub fn add(&mut self, range: Reservation) {
        self.blocks = self.blocks.saturating_add(range.blocks());
        self.ranges = self.ranges.saturating_add(1);
    }

    /// Removes a range.
    pub fn remove(&mut self, range: Reservation) {
        self.blocks = self.blocks.saturating_sub(range.blocks());
        self.ranges = self.ranges.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_as_they_were_written() {
        let mut extensions = Extensions::default();
        let zero = ReservationTotals::default();
        assert_eq!(ReservationTotals::of(&extensions), Some(zero));
        let totals = ReservationTotals { blocks: 1 << 40, ranges: 3 };
        totals.put_into(&mut extensions);
        assert_eq!(ReservationTotals::of(&extensions), Some(totals));
        ReservationTotals { blocks: COUNT_KEPT_MAX, ranges: 3 }.put_into(&mut extensions);
        assert_eq!(ReservationTotals::of(&extensions), None, "out of range");
        zero.put_into(&mut extensions);
        assert_eq!(extensions, Extensions::default(), "no record without reservations");
        let class = ExtensionClass::ReadOnly;
        extensions.set(Extension { tag: RESERVATIONS_TAG, class, bytes: vec![1; 15] });
        assert_eq!(ReservationTotals::of(&extensions), None, "15 bytes");
    }

    #[test]
    fn a_range_of_all_blocks_counts_them() {
        let all = Reservation { first: 0, last: u32::MAX };
        assert_eq!(all.blocks(), 1 << 32);
        assert_eq!(Reservation::decode(&all.key(20), &all.encode()), Ok(all));
        let empty = Reservation { first: 8, last: 7 };
        assert!(Reservation::decode(&empty.key(20), &empty.encode()).is_err());
        let key = Key { offset: 1 << 32, ..all.key(20) };
        assert!(Reservation::decode(&key, &all.encode()).is_err(), "beyond the largest file");
        assert!(Reservation::decode(&all.key(20), &[0; 5]).is_err());
    }
}
