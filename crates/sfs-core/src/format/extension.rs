//! The extension area of a checkpoint: records that later programs may add.
//!
//! Each record has a tag, and a class that is the rule for programs that do not know the tag.

use bincode::de::Decoder;
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode, impl_borrow_decode};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Incompatibility;

/// Maximum length of an extension area in bytes.
pub const EXTENSION_LEN_MAX: usize = 24 * 1024;

/// The rule for a program that does not know a record's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExtensionClass {
    /// The program repeats the record in its own checkpoints.
    Keep = 1,
    /// The program ignores the record and does not repeat it, because it would be stale.
    Drop = 2,
    /// The program may only read the volume.
    ReadOnly = 3,
    /// The program refuses the volume.
    Refuse = 4,
}

impl ExtensionClass {
    /// Returns the name of the class.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Drop => "drop",
            Self::ReadOnly => "read-only",
            Self::Refuse => "refuse",
        }
    }

    fn decode(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Keep,
            2 => Self::Drop,
            3 => Self::ReadOnly,
            4 => Self::Refuse,
            _ => return None,
        })
    }
}

/// One record of an extension area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Kind of the record.
    pub tag: u16,
    /// The rule for programs that do not know the tag.
    pub class: ExtensionClass,
    /// Content of the record.
    pub bytes: Vec<u8>,
}

impl Extension {
    /// Returns the length of a record with `content_len` bytes of content in an area.
    pub fn len_of(content_len: usize) -> usize {
        HEADER_LEN + content_len
    }
}

/// Tag of the record of remembered errors.
pub(super) const ERRORS_TAG: u16 = 1;

/// Tag of the record with the number of files.
pub(super) const FILE_COUNT_TAG: u16 = 2;

/// Tag of the record with the totals of the reservations.
pub(super) const RESERVATIONS_TAG: u16 = 3;

/// Tag of the record with the number of segments in the usage table.
pub(super) const TABLE_SEGMENTS_TAG: u16 = 6;

/// Tag of the wear ledger.
pub(super) const WEAR_TAG: u16 = 7;

/// Tags that this program knows.
const KNOWN: [u16; 5] =
    [ERRORS_TAG, FILE_COUNT_TAG, RESERVATIONS_TAG, TABLE_SEGMENTS_TAG, WEAR_TAG];

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    tag: U16,
    class: u8,
    reserved: u8,
    len: U32,
}

const HEADER_LEN: usize = 8;
const _: () = assert!(size_of::<RawHeader>() == HEADER_LEN);

/// The records of an extension area, ascending by tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions(Vec<Extension>);

impl Extensions {
    /// Returns the content of the record with `tag`.
    pub fn get(&self, tag: u16) -> Option<&[u8]> {
        let index = self.0.binary_search_by_key(&tag, |extension| extension.tag).ok()?;
        Some(&self.0[index].bytes)
    }

    /// Inserts `extension`, or replaces the record with its tag.
    pub fn set(&mut self, extension: Extension) {
        match self.0.binary_search_by_key(&extension.tag, |other| other.tag) {
            Ok(index) => self.0[index] = extension,
            Err(index) => self.0.insert(index, extension),
        }
    }

    /// Inserts or replaces `extension` if the area stays within [`EXTENSION_LEN_MAX`].
    pub fn set_if_room(&mut self, extension: Extension) {
        let others = self.0.iter().filter(|other| other.tag != extension.tag);
        let len = |extension: &Extension| HEADER_LEN + extension.bytes.len();
        if others.map(len).sum::<usize>() + len(&extension) <= EXTENSION_LEN_MAX {
            self.set(extension);
        }
    }

    /// Removes the record with `tag`.
    pub fn remove(&mut self, tag: u16) {
        self.0.retain(|extension| extension.tag != tag);
    }

    /// Returns the records, ascending by tag.
    pub fn iter(&self) -> impl Iterator<Item = &Extension> {
        self.0.iter()
    }

    /// Returns the records that the next checkpoint of this program repeats: known records, and
    /// records of class `Keep`.
    pub fn repeated(&self) -> Self {
        let is_repeated = |extension: &&Extension| {
            is_known(extension.tag) || extension.class == ExtensionClass::Keep
        };
        Self(self.0.iter().filter(is_repeated).cloned().collect())
    }

    /// Returns the reason why this program cannot read the volume or, with `writes`, cannot write
    /// to it.
    pub fn incompatibility(&self, writes: bool) -> Option<Incompatibility> {
        let of_class = |class| {
            let mut unknown = self.0.iter().filter(|extension| !is_known(extension.tag));
            unknown.find(|extension| extension.class == class).map(|extension| extension.tag)
        };
        let refused = of_class(ExtensionClass::Refuse).map(Incompatibility::Extension);
        let written = || of_class(ExtensionClass::ReadOnly).map(Incompatibility::ReadOnlyExtension);
        refused.or_else(|| written().filter(|_| writes))
    }

    /// Appends the area to `bytes`.
    ///
    /// # Panics
    ///
    /// If the area is longer than [`EXTENSION_LEN_MAX`].
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        for extension in &self.0 {
            let header = RawHeader {
                tag: extension.tag.into(),
                class: extension.class as u8,
                reserved: 0,
                len: (extension.bytes.len() as u32).into(),
            };
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(&extension.bytes);
        }
        assert!(bytes.len() - start <= EXTENSION_LEN_MAX, "the extension area is bounded");
    }

    /// Decodes a whole area; `None` if it is malformed.
    pub(super) fn decode_all(mut bytes: &[u8]) -> Option<Self> {
        if bytes.len() > EXTENSION_LEN_MAX {
            return None;
        }
        let mut extensions: Vec<Extension> = Vec::new();
        while !bytes.is_empty() {
            let (header, rest) = RawHeader::ref_from_prefix(bytes).ok()?;
            let (content, rest) = rest.split_at_checked(header.len.get() as usize)?;
            let tag = header.tag.get();
            if extensions.last().is_some_and(|last| last.tag >= tag) {
                return None;
            }
            let class = ExtensionClass::decode(header.class)?;
            extensions.push(Extension { tag, class, bytes: content.to_vec() });
            bytes = rest;
        }
        Some(Self(extensions))
    }
}

// The payload of a checkpoint does not contain the area that follows it.
impl Encode for Extensions {
    fn encode<E: Encoder>(&self, _: &mut E) -> Result<(), EncodeError> {
        Ok(())
    }
}

impl<C> Decode<C> for Extensions {
    fn decode<D: Decoder<Context = C>>(_: &mut D) -> Result<Self, DecodeError> {
        Ok(Self::default())
    }
}

impl_borrow_decode!(Extensions);

fn is_known(tag: u16) -> bool {
    KNOWN.contains(&tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(records: &[(u16, ExtensionClass)]) -> Extensions {
        let mut area = Extensions::default();
        for (tag, class) in records {
            area.set(Extension { tag: *tag, class: *class, bytes: vec![*tag as u8; 3] });
        }
        area
    }

    #[test]
    fn an_unknown_record_is_treated_by_its_class() {
        use ExtensionClass::{Drop, Keep, ReadOnly, Refuse};
        let kept = area(&[(900, Keep), (901, Drop)]);
        assert_eq!(kept.repeated(), area(&[(900, Keep)]));
        assert_eq!(kept.incompatibility(true), None);
        let read = area(&[(900, ReadOnly)]);
        assert_eq!(read.incompatibility(false), None);
        assert_eq!(read.incompatibility(true), Some(Incompatibility::ReadOnlyExtension(900)));
        let refused = area(&[(900, ReadOnly), (901, Refuse)]);
        for writes in [false, true] {
            assert_eq!(refused.incompatibility(writes), Some(Incompatibility::Extension(901)));
        }
    }

    #[test]
    fn an_area_decodes_to_what_was_encoded_and_nothing_else_decodes() {
        use ExtensionClass::{Drop, Keep};
        let extensions = area(&[(900, Keep), (901, Drop)]);
        let mut bytes = Vec::new();
        extensions.append_to(&mut bytes);
        assert_eq!(Extensions::decode_all(&bytes), Some(extensions));
        assert_eq!(
            Extensions::decode_all(&bytes[..bytes.len() - 1]),
            None,
            "the record is cut off"
        );
        let twice = [&bytes[..], &bytes[..]].concat();
        assert_eq!(Extensions::decode_all(&twice), None, "tags ascend");
        bytes[2] = 0;
        assert_eq!(Extensions::decode_all(&bytes), None, "0 is no class");
    }
}
