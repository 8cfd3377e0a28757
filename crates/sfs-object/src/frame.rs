//! Bytes of an object: a header that binds it to its name and its writer, the content, and a checksum.
//!
//! All integers are little-endian. 0: magic, 4: version, 5: kind, 6: zero (2 bytes), 8: epoch and 16: number of the name, 24: nonce of the writer (16
//! bytes), 40: kind of the name, 41: zero (3 bytes), 44: CRC-32C of bytes 0 to 43 and of the content, 48: content.

use crate::error::ObjectError;
use crate::name::{Epoch, NUMBER_MAX, ObjectName};

const MAGIC: [u8; 4] = *b"SFSo";
const VERSION: u8 = 1;
const CHECKSUM_AT: usize = 44;
/// Length of the header, behind which the content of data begins.
pub(crate) const HEADER_LEN: usize = 48;
/// Kind of an object with data.
const DATA: u8 = 2;
/// Length of a seal.
pub(crate) const SEAL_LEN: usize = HEADER_LEN + size_of::<u64>();

/// 128 random bits that tell writers apart; new ones for each epoch that is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 16]);

/// State of a volume without the log objects that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// First log object of the manifest's epoch that the state does not contain.
    pub log_start: u64,
    /// The state, in the caller's encoding.
    pub state: Vec<u8>,
}

/// Content of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The claim of an epoch.
    Claim,
    /// Bytes of the log, or joined ones.
    Data(Vec<u8>),
    /// A manifest.
    Manifest(Manifest),
    /// The seal of a log or of manifests, by the writer of this epoch.
    Seal(Epoch),
}

/// A decoded object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Nonce of the writer of the object.
    pub(crate) nonce: Nonce,
    pub(crate) content: Content,
}

impl Frame {
    /// Returns the bytes of the object `name`.
    pub(crate) fn encode(&self, name: ObjectName) -> Vec<u8> {
        let mut bytes = header(name, self.nonce, self.content.kind());
        match &self.content {
            Content::Claim => {}
            Content::Data(data) => return encode_data(name, self.nonce, data, Vec::new()),
            Content::Seal(by) => bytes.extend(by.0.to_le_bytes()),
            Content::Manifest(Manifest { log_start, state }) => {
                bytes.extend(log_start.to_le_bytes());
                bytes.extend(state);
            }
        }
        let checksum = checksum(&bytes);
        bytes[CHECKSUM_AT..HEADER_LEN].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the bytes of the object `name`. Whatever does not belong to this name is [`ObjectError::Damaged`].
    pub(crate) fn decode(name: ObjectName, bytes: &[u8]) -> Result<Self, ObjectError> {
        Self::decode_sound(name, bytes).ok_or(ObjectError::Damaged(name))
    }

    fn decode_sound(name: ObjectName, bytes: &[u8]) -> Option<Self> {
        let (head, body) = bytes.split_at_checked(HEADER_LEN)?;
        let nonce = Nonce(head[24..40].try_into().ok()?);
        let kind = head[5];
        let expected = header(name, nonce, kind);
        if head[..CHECKSUM_AT] != expected[..CHECKSUM_AT]
            || head[CHECKSUM_AT..] != checksum(bytes).to_le_bytes()
        {
            return None;
        }
        let content = match (kind, name) {
            (1, ObjectName::Claim(_)) if body.is_empty() => Content::Claim,
            (DATA, ObjectName::Log(..) | ObjectName::Data(..)) => Content::Data(body.to_vec()),
            (3, ObjectName::Manifest(..)) => {
                let (log_start, state) = body.split_first_chunk()?;
                let log_start = u64::from_le_bytes(*log_start);
                if !(1..=NUMBER_MAX).contains(&log_start) {
                    return None;
                }
                Content::Manifest(Manifest { log_start, state: state.to_vec() })
            }
            (4, ObjectName::Log(..) | ObjectName::Manifest(..)) => {
                Content::Seal(Epoch(u64::from_le_bytes(body.try_into().ok()?)))
            }
            _ => return None,
        };
        Some(Self { nonce, content })
    }
}

/// Returns the bytes of the object `name` with this content, in `memory`, which is empty.
pub(crate) fn encode_data(
    name: ObjectName,
    nonce: Nonce,
    content: &[u8],
    memory: Vec<u8>,
) -> Vec<u8> {
    let mut bytes = memory;
    bytes.reserve_exact(HEADER_LEN + content.len());
    bytes.extend(header(name, nonce, DATA));
    bytes.extend_from_slice(content);
    let checksum = checksum(&bytes);
    bytes[CHECKSUM_AT..HEADER_LEN].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

impl Content {
    fn kind(&self) -> u8 {
        match self {
            Self::Claim => 1,
            Self::Data(_) => DATA,
            Self::Manifest(_) => 3,
            Self::Seal(_) => 4,
        }
    }
}

/// Returns a header without its checksum.
fn header(name: ObjectName, nonce: Nonce, kind: u8) -> Vec<u8> {
    let (name_kind, epoch, number) = name.parts();
    let mut header = MAGIC.to_vec();
    header.extend([VERSION, kind, 0, 0]);
    header.extend(epoch.0.to_le_bytes());
    header.extend(u64::to_le_bytes(number));
    header.extend(nonce.0);
    header.extend([name_kind, 0, 0, 0]);
    header.extend([0; HEADER_LEN - CHECKSUM_AT]);
    header
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKSUM_AT]), &bytes[HEADER_LEN..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: Nonce = Nonce([7; 16]);

    fn examples() -> [(ObjectName, Content); 5] {
        let epoch = Epoch(3);
        let manifest = Manifest { log_start: 9, state: b"state".to_vec() };
        [
            (ObjectName::Claim(epoch), Content::Claim),
            (ObjectName::Log(epoch, 5), Content::Data(b"data".to_vec())),
            (ObjectName::Data(epoch, 5), Content::Data(Vec::new())),
            (ObjectName::Manifest(epoch, 2), Content::Manifest(manifest)),
            (ObjectName::Log(epoch, 6), Content::Seal(Epoch(4))),
        ]
    }

    #[test]
    fn objects_are_read_as_they_were_written() {
        for (name, content) in examples() {
            let frame = Frame { nonce: NONCE, content };
            assert_eq!(Frame::decode(name, &frame.encode(name)), Ok(frame));
        }
    }

    #[test]
    fn golden_bytes() {
        let name = ObjectName::Log(Epoch(3), 5);
        let bytes = Frame { nonce: NONCE, content: Content::Data(b"data".to_vec()) }.encode(name);
        let golden = "5346536f01020000 0300000000000000 0500000000000000 \
                      07070707070707070707070707070707 02000000 9c6d9467 64617461";
        let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex, golden.replace(' ', ""));
    }

    #[test]
    fn objects_of_other_names_and_damaged_ones_are_refused() {
        for (name, content) in examples() {
            let bytes = Frame { nonce: NONCE, content }.encode(name);
            for (other, _) in examples().into_iter().filter(|(other, _)| *other != name) {
                assert_eq!(Frame::decode(other, &bytes), Err(ObjectError::Damaged(other)));
            }
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert_eq!(
                    Frame::decode(name, &damaged),
                    Err(ObjectError::Damaged(name)),
                    "byte {at}"
                );
                assert_eq!(Frame::decode(name, &bytes[..at]), Err(ObjectError::Damaged(name)));
            }
        }
    }
}
