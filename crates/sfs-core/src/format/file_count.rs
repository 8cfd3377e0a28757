//! Number of files, as a checkpoint keeps it in its extension area.

use super::extension::FILE_COUNT_TAG;
use super::{COUNT_KEPT_MAX, Extension, ExtensionClass, Extensions};

/// Number of inodes of all kinds, the root directory and files that wait to be deleted included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCount(pub u64);

impl FileCount {
    /// Returns the count in `extensions`; `None` if an older program has written the checkpoint
    /// without a count, or if the record is malformed.
    pub fn of(extensions: &Extensions) -> Option<Self> {
        let bytes = extensions.get(FILE_COUNT_TAG)?;
        let count = u64::from_le_bytes(bytes.try_into().ok()?);
        (count < COUNT_KEPT_MAX).then_some(Self(count))
    }

    /// Sets the record in `extensions`. Programs that do not know the record drop it, because they
    /// do not count files.
    pub fn put_into(self, extensions: &mut Extensions) {
        let bytes = self.0.to_le_bytes().to_vec();
        let class = ExtensionClass::Drop;
        extensions.set_if_room(Extension { tag: FILE_COUNT_TAG, class, bytes });
    }

    /// Removes the record from `extensions`.
    pub fn remove_from(extensions: &mut Extensions) {
        extensions.remove(FILE_COUNT_TAG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_as_it_was_written() {
        let mut extensions = Extensions::default();
        assert_eq!(FileCount::of(&extensions), None);
        for count in [0, 1, COUNT_KEPT_MAX - 1] {
            FileCount(count).put_into(&mut extensions);
            assert_eq!(FileCount::of(&extensions), Some(FileCount(count)));
        }
        FileCount(COUNT_KEPT_MAX).put_into(&mut extensions);
        assert_eq!(FileCount::of(&extensions), None, "out of range");
        let class = ExtensionClass::Drop;
        extensions.set(Extension { tag: FILE_COUNT_TAG, class, bytes: vec![1; 7] });
        assert_eq!(FileCount::of(&extensions), None, "7 bytes");
    }
}
