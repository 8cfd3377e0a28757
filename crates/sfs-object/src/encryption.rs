//! Encryption of objects: who reads the store sees names, sizes and times, and who writes to it can forge nothing.
//!
//! [`EncryptedStore`] lies between the protocol and a store. It encrypts what is put, and decrypts what is read; an object that was
//! changed, cut or moved decodes as a damaged one. A [`FileKey`] comes from a key file. The key of a volume is derived from it and from the
//! *salt* of the volume: random bits that every object begins with, and the first claim first.
//!
//! Bytes of an encrypted object, integers little-endian. 0: magic, 4: version, 5: zero (3 bytes), 8: salt (16 bytes), 24: *frames*. Frame 0 has
//! the first 48 bytes of the object, its header; each other one has the next 64 KiB, so that a page of a region is a frame; the last one has
//! less than that, perhaps nothing. Frame: 0: nonce (24 random bytes), 24: ciphertext, then: tag (16 bytes). The cipher is XChaCha20-Poly1305 with these
//! associated data: magic and version, kind (1 byte), epoch and number of the name, index of the frame, and 1 in the last frame, 0 in others
//! (1 byte). The key of the volume is HChaCha20 of the file's key and the salt.

mod file_key;
mod store;
mod volume_key;

pub use file_key::{FileKey, KeyFileError};
pub use store::{EncryptedStore, EncryptionError};

/// Fills bytes with random bits.
pub type Random = dyn Fn(&mut [u8]) + Send + Sync;

/// Fills bytes with random bits of the system.
pub fn system_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("Linux has random bits once it has started");
}
