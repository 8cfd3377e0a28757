//! Number of segments that the usage table of a checkpoint has, while a resize is under way.

use super::extension::TABLE_SEGMENTS_TAG;
use super::{CheckpointRecord, Extension, ExtensionClass, Extensions};

/// Number of segments in the usage table of a checkpoint that a resize has written. The table has no entries for
/// the segments from this number on; these are Clean with stamp 0. Other checkpoints have no such record, and a table
/// of all segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSegments(pub u32);

impl TableSegments {
    /// Returns the number of segments in the usage table of the checkpoint with `extensions`, on a volume of
    /// `segment_count` segments; `None` if the record is malformed or has no number from 1 to `segment_count`.
    pub fn of(extensions: &Extensions, segment_count: u32) -> Option<Self> {
        let Some(bytes) = extensions.get(TABLE_SEGMENTS_TAG) else {
            return Some(Self(segment_count));
        };
        let count = u32::from_le_bytes(bytes.try_into().ok()?);
        (1..=segment_count).contains(&count).then_some(Self(count))
    }

    /// Sets the record in `extensions`, if there is room. A program that does not know the record refuses the volume:
    /// it would miss entries of the table.
    pub fn put_into(self, extensions: &mut Extensions) {
        let bytes = self.0.to_le_bytes().to_vec();
        let class = ExtensionClass::Refuse;
        extensions.set_if_room(Extension { tag: TABLE_SEGMENTS_TAG, class, bytes });
    }

    /// Returns whether `extensions` have the record.
    pub fn is_in(extensions: &Extensions) -> bool {
        extensions.get(TABLE_SEGMENTS_TAG).is_some()
    }

    /// Returns whether a crash has interrupted the shrink that wrote `next`: its table lacks segments of the volume, of
    /// `segment_count` segments, and `record` in the other slot, the checkpoint before it, has a whole table. Then `next`
    /// counts as a checkpoint whose nodes were written and whose record was not.
    ///
    /// A growth whose superblock is durable has such a record in both slots.
    pub fn is_interrupted_shrink(
        record: &CheckpointRecord,
        next: &CheckpointRecord,
        segment_count: u32,
    ) -> bool {
        let table = Self::of(&next.extensions, segment_count);
        table.is_some_and(|table| table.0 < segment_count)
            && record.number.checked_add(1) == Some(next.number)
            && !Self::is_in(&record.extensions)
    }

    /// Removes the record from `extensions`.
    pub fn remove_from(extensions: &mut Extensions) {
        extensions.remove(TABLE_SEGMENTS_TAG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_was_written() {
        let mut extensions = Extensions::default();
        assert_eq!(TableSegments::of(&extensions, 40), Some(TableSegments(40)), "no record");
        TableSegments(32).put_into(&mut extensions);
        assert_eq!(TableSegments::of(&extensions, 40), Some(TableSegments(32)));
        assert_eq!(TableSegments::of(&extensions, 32), Some(TableSegments(32)));
        assert_eq!(TableSegments::of(&extensions, 31), None, "more than the volume has");
        TableSegments(0).put_into(&mut extensions);
        assert_eq!(TableSegments::of(&extensions, 40), None, "no segment");
        let class = ExtensionClass::Refuse;
        extensions.set(Extension { tag: TABLE_SEGMENTS_TAG, class, bytes: vec![1; 8] });
        assert_eq!(TableSegments::of(&extensions, 40), None, "8 bytes");
        TableSegments::remove_from(&mut extensions);
        assert!(!TableSegments::is_in(&extensions));
    }
}
