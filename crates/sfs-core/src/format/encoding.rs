//! Encodings: the ways in which a file's block can be stored.

/// The way in which a mapped block is stored. This program reads and writes the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Encoding {
    /// Plain data with a checksum.
    Plain = 1,
    /// Plain data that is overwritten in place, without a checksum.
    InPlace = 2,
    /// Reserved: an allocated block without data.
    Unwritten = 3,
    /// Reserved: a block of several mappings.
    Shared = 4,
    /// Reserved: compressed data.
    Compressed = 5,
}

impl Encoding {
    /// Decodes an encoding.
    pub fn decode(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Plain,
            2 => Self::InPlace,
            3 => Self::Unwritten,
            4 => Self::Shared,
            5 => Self::Compressed,
            _ => return None,
        })
    }
}
