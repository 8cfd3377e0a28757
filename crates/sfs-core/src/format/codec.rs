//! The encoding of variable-length records: bincode, fixed-width, little-endian.
//!
//! Decoded bytes have passed their checksum; the limit bounds the memory that is allocated for
//! forged bytes.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};

/// Maximum length of a record in bytes.
pub const RECORD_LEN_MAX: usize = 128 * 1024;

const CONFIG: Configuration<LittleEndian, Fixint, Limit<RECORD_LEN_MAX>> =
    bincode::config::standard().with_little_endian().with_fixed_int_encoding().with_limit();

/// Appends the encoding of `record` to `bytes`.
pub fn append<T: bincode::Encode>(record: &T, bytes: &mut Vec<u8>) {
    bincode::encode_into_std_write(record, bytes, CONFIG)
        .expect("a record below the limit always encodes into memory");
}

/// Decodes one record from the start of `bytes`, and returns it with its length.
pub fn decode<T: bincode::Decode<()>>(bytes: &[u8]) -> Option<(T, usize)> {
    bincode::decode_from_slice(bytes, CONFIG).ok()
}
