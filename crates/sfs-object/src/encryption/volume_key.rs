//! The key of a volume, and the frames of its objects.

use std::ops::Range;

use chacha20::{R20, hchacha};
use chacha20poly1305::{AeadInOut, Key, KeyInit, XChaCha20Poly1305};
use zeroize::Zeroize;

use super::Random;
use super::file_key::FileKey;
use crate::frame::HEADER_LEN;
use crate::name::ObjectName;
use crate::store::Part;

const MAGIC: [u8; 4] = *b"SFSe";
const VERSION: u8 = 1;
/// Length of what is before the frames.
const PREFIX_LEN: usize = 24;
/// Length of the content of each frame but the first and the last.
const FRAME_LEN: usize = 64 << 10;
const NONCE_LEN: usize = 24;
const TAG_LEN: usize = 16;
/// Bytes of a frame besides its content.
const OVERHEAD: usize = NONCE_LEN + TAG_LEN;

/// Random bits of a volume.
pub(super) type Salt = [u8; 16];

/// Meaning of the first bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    /// The object is not encrypted.
    Plain,
    /// The object is encrypted, in a volume with this salt.
    Encrypted(Salt),
    /// The object is encrypted in a way that this program does not know.
    Unknown,
}

impl Prefix {
    pub(super) fn of(bytes: &[u8]) -> Self {
        match bytes.split_at_checked(PREFIX_LEN) {
            Some((prefix, _)) if prefix[..8] == prefix_begin() => {
                Self::Encrypted(prefix[8..].try_into().expect("16 bytes"))
            }
            _ if bytes.starts_with(&MAGIC) => Self::Unknown,
            _ => Self::Plain,
        }
    }
}

fn prefix_begin() -> [u8; 8] {
    let [a, b, c, d] = MAGIC;
    [a, b, c, d, VERSION, 0, 0, 0]
}

/// The key of a volume.
pub(super) struct VolumeKey {
    salt: Salt,
    /// Overwrites its key when it is dropped.
    cipher: XChaCha20Poly1305,
}

impl VolumeKey {
    pub(super) fn new(file_key: &FileKey, salt: Salt) -> Self {
        let mut of_file = Key::from(*file_key.0);
        let mut key = hchacha::<R20>(&of_file, &salt.into());
        let cipher = XChaCha20Poly1305::new(&key);
        of_file.zeroize();
        key.zeroize();
        Self { salt, cipher }
    }

    /// Returns the bytes of the object `name` with this content, for the store. Each call draws new nonces.
    pub(super) fn encrypt(&self, name: ObjectName, content: &[u8], random: &Random) -> Vec<u8> {
        let frames = 2 + content.len() / FRAME_LEN;
        let mut bytes = Vec::with_capacity(PREFIX_LEN + content.len() + frames * OVERHEAD);
        bytes.extend(prefix_begin());
        bytes.extend(self.salt);
        let mut rest = content;
        for index in 0.. {
            let is_last = rest.len() < frame_len(index);
            let (content, after) = rest.split_at(frame_len(index).min(rest.len()));
            rest = after;
            let mut nonce = [0; NONCE_LEN];
            random(&mut nonce);
            bytes.extend(nonce);
            let begin = bytes.len();
            bytes.extend(content);
            let tag = self.cipher.encrypt_inout_detached(
                &nonce.into(),
                &associated(name, index, is_last),
                bytes[begin..].as_mut().into(),
            );
            bytes.extend(tag.expect("a frame is far shorter than the limit of the cipher"));
            if is_last {
                break;
            }
        }
        bytes
    }

    /// Returns the content of the object `name`, or `None` if these bytes are not that object, whole.
    pub(super) fn decrypt(&self, name: ObjectName, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        if Prefix::of(&bytes) != Prefix::Encrypted(self.salt) {
            return None;
        }
        let is_last = self.decrypt_frames((name, 0), &mut bytes, PREFIX_LEN)?;
        is_last.then_some(bytes)
    }

    /// Returns the content of a part of an object, from the bytes of [`stored`]. It is shorter if the object is.
    pub(super) fn decrypt_part(&self, part: Part, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let first = index_of(part.offset);
        self.decrypt_frames((part.name, first), &mut bytes, 0)?;
        Some(Part { offset: part.offset - begin_of(first), ..part }.of(&bytes))
    }

    /// Replaces frames, which begin in `bytes` at `from` with the one of `index`, by their content. Returns whether the last one is the
    /// last one of the object, or `None` if one is not what it should be.
    fn decrypt_frames(
        &self,
        (name, mut index): (ObjectName, u64),
        bytes: &mut Vec<u8>,
        mut from: usize,
    ) -> Option<bool> {
        let (mut to, mut was_last) = (0, false);
        while from < bytes.len() {
            let full = frame_len(index) + OVERHEAD;
            let len = full.min(bytes.len() - from);
            was_last = len < full;
            let (nonce, rest) = bytes[from..from + len].split_at_mut_checked(NONCE_LEN)?;
            let content_len = rest.len().checked_sub(TAG_LEN)?;
            let (content, tag) = rest.split_at_mut(content_len);
            let nonce = <[u8; NONCE_LEN]>::try_from(&*nonce).ok()?;
            let tag = <[u8; TAG_LEN]>::try_from(&*tag).ok()?;
            let associated = associated(name, index, was_last);
            self.cipher
                .decrypt_inout_detached(&nonce.into(), &associated, content.into(), &tag.into())
                .ok()?;
            bytes.copy_within(from + NONCE_LEN..from + NONCE_LEN + content_len, to);
            (from, to, index) = (from + len, to + content_len, index + 1);
        }
        bytes.truncate(to);
        Some(was_last)
    }
}

/// Returns the bytes of an encrypted object that have the frames with this part of its content.
pub(super) fn stored(part: Part) -> Part {
    let frames = frames_of(part);
    let offset = |index: u64| PREFIX_LEN as u64 + begin_of(index) + index * OVERHEAD as u64;
    let (begin, end) = (offset(frames.start), offset(frames.end));
    Part { name: part.name, offset: begin, len: end - begin }
}

fn frames_of(part: Part) -> Range<u64> {
    let first = index_of(part.offset);
    match part.len {
        0 => first..first,
        len => first..index_of(part.offset + (len - 1)) + 1,
    }
}

/// Returns the length of the content of a frame that is not the last.
fn frame_len(index: u64) -> usize {
    if index == 0 { HEADER_LEN } else { FRAME_LEN }
}

/// Returns the offset of the content of a frame.
fn begin_of(index: u64) -> u64 {
    if index == 0 { 0 } else { HEADER_LEN as u64 + (index - 1) * FRAME_LEN as u64 }
}

/// Returns the index of the frame that has this byte of the content.
fn index_of(offset: u64) -> u64 {
    match offset.checked_sub(HEADER_LEN as u64) {
        None => 0,
        Some(behind) => 1 + behind / FRAME_LEN as u64,
    }
}

/// Returns the associated data of a frame. The volume is in the key.
fn associated(name: ObjectName, index: u64, is_last: bool) -> [u8; 31] {
    let (kind, epoch, number) = name.parts();
    let mut data = [0; 31];
    data[..4].copy_from_slice(&MAGIC);
    data[4] = VERSION;
    data[5] = kind;
    data[6..14].copy_from_slice(&epoch.0.to_le_bytes());
    data[14..22].copy_from_slice(&number.to_le_bytes());
    data[22..30].copy_from_slice(&index.to_le_bytes());
    data[30] = u8::from(is_last);
    data
}

#[cfg(test)]
mod tests;
