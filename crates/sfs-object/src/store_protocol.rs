//! Frames between a [`SocketStore`](crate::SocketStore) and the program that reaches the object store.
//!
//! The program begins with [`GREETING`], and a reply of number 0 that says whether it can serve. After that the store sends requests, each with a
//! number of its own, and the program answers each once, in any order. The end of the connection is the end of the program; what
//! happens to requests that were not answered is unknown.
//!
//! All integers are little-endian. Request: 0: number, 8: kind, 9: kind of the name, 10: zero (6 bytes), 16: epoch and 24: number of the name, 32: offset
//! and 40: length of a part, 48: length of the body, 56: body (of a PUT). Reply: 0: number, 8: kind, 9: zero (7 bytes), 16: length of the body, 24: body
//! (the object, or a text for the user).

use std::io;

use crate::name::{Epoch, ObjectName};
use crate::store::Part;
use crate::wire::{Decoder, Encoder};

/// First bytes from the program: its name, and the version of the protocol.
pub const GREETING: [u8; 16] = *b"sfs-store\0\0\0\x01\0\0\0";
/// Length of a request without its body.
pub const REQUEST_LEN: usize = 56;
/// Length of a reply without its body.
pub const REPLY_LEN: usize = 24;
/// Largest body: 1 GiB, far more than any object.
pub const BODY_LEN_MAX: u64 = 1 << 30;

/// A request without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Stores the body, if the name is free.
    Put(ObjectName),
    /// Reads an object.
    Get(ObjectName),
    /// Reads a part of an object.
    GetPart(Part),
    /// Deletes an object, if it exists.
    Delete(ObjectName),
    /// Tries, with a name that no volume uses, whether the first PUT of a name decides its content.
    Probe,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was done: the object is stored, no object of this name is left, or the store can be used.
    Done,
    /// The name had an object already.
    Taken,
    /// Nobody knows whether it was done, and why.
    Unknown(String),
    /// The bytes that were asked for.
    Found(Vec<u8>),
    /// There is no object of this name.
    Absent,
    /// The store refuses such requests, and has not done it; with what it says.
    Refused(String),
}

/// The other side does not keep to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side of the socket does not speak the protocol of object stores")]
pub struct Foreign;

impl From<Foreign> for io::Error {
    fn from(error: Foreign) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

impl Request {
    /// Returns the first bytes of the request with this number, which a body of `body_len` bytes follows.
    pub fn encode(&self, number: u64, body_len: u64) -> Vec<u8> {
        let (kind, name, (offset, len)) = match *self {
            Self::Put(name) => (1, Some(name), (0, 0)),
            Self::Get(name) => (2, Some(name), (0, 0)),
            Self::GetPart(part) => (3, Some(part.name), (part.offset, part.len)),
            Self::Delete(name) => (4, Some(name), (0, 0)),
            Self::Probe => (5, None, (0, 0)),
        };
        let (name_kind, epoch, name_number) = name.map_or((0, Epoch(0), 0), ObjectName::parts);
        let mut frame = Encoder::default();
        frame.number(number);
        [kind, name_kind, 0, 0, 0, 0, 0, 0].into_iter().for_each(|byte| frame.byte(byte));
        [epoch.0, name_number, offset, len, body_len]
            .into_iter()
            .for_each(|field| frame.number(field));
        frame.0
    }

    /// Returns the number, the request, and the length of its body.
    pub fn decode(bytes: &[u8; REQUEST_LEN]) -> Result<(u64, Self, u64), Foreign> {
        Self::fields(bytes).filter(|(_, _, body_len)| *body_len <= BODY_LEN_MAX).ok_or(Foreign)
    }

    fn fields(bytes: &[u8; REQUEST_LEN]) -> Option<(u64, Self, u64)> {
        let mut fields = Decoder(bytes);
        let number = fields.number()?;
        let [kind, name_kind, zeros @ ..] = fields.array::<8>()?;
        let name = ObjectName::from_parts(name_kind, Epoch(fields.number()?), fields.number()?);
        let (offset, len, body_len) = (fields.number()?, fields.number()?, fields.number()?);
        let request = match kind {
            1 => Self::Put(name?),
            2 => Self::Get(name?),
            3 => Self::GetPart(Part { name: name?, offset, len }),
            4 => Self::Delete(name?),
            5 if name_kind == 0 => Self::Probe,
            _ => return None,
        };
        let is_sound = zeros == [0; 6] && (body_len == 0 || kind == 1);
        is_sound.then_some((number, request, body_len))
    }
}

impl Reply {
    /// Returns the first bytes of the reply to request `number`. The [`body`](Self::body) follows.
    pub fn encode(&self, number: u64) -> Vec<u8> {
        let kind = match self {
            Self::Done => 1,
            Self::Taken => 2,
            Self::Unknown(_) => 3,
            Self::Found(_) => 4,
            Self::Absent => 5,
            Self::Refused(_) => 6,
        };
        Self::head(number, kind, self.body().len())
    }

    /// Returns the first bytes of a reply with `body_len` bytes that were found, which follow.
    pub fn head_of_found(number: u64, body_len: usize) -> Vec<u8> {
        Self::head(number, 4, body_len)
    }

    fn head(number: u64, kind: u8, body_len: usize) -> Vec<u8> {
        let mut frame = Encoder::default();
        frame.number(number);
        [kind, 0, 0, 0, 0, 0, 0, 0].into_iter().for_each(|byte| frame.byte(byte));
        frame.number(body_len as u64);
        frame.0
    }

    /// Returns the bytes behind the first ones.
    pub fn body(&self) -> &[u8] {
        match self {
            Self::Done | Self::Taken | Self::Absent => &[],
            Self::Unknown(text) | Self::Refused(text) => text.as_bytes(),
            Self::Found(bytes) => bytes,
        }
    }

    /// Returns the number of the request, the kind of the reply, and the length of its body.
    pub fn decode_head(bytes: &[u8; REPLY_LEN]) -> Result<(u64, u8, u64), Foreign> {
        let head = || {
            let mut fields = Decoder(bytes);
            let number = fields.number()?;
            let [kind, zeros @ ..] = fields.array::<8>()?;
            let body_len = fields.number()?;
            let is_sound = zeros == [0; 7] && body_len <= BODY_LEN_MAX;
            is_sound.then_some((number, kind, body_len))
        };
        head().ok_or(Foreign)
    }

    /// Returns the reply of a kind that [`decode_head`](Self::decode_head) has returned.
    pub fn decode(kind: u8, body: Vec<u8>) -> Result<Self, Foreign> {
        let text = |body| String::from_utf8(body).map_err(|_| Foreign);
        Ok(match (kind, body.is_empty()) {
            (1, true) => Self::Done,
            (2, true) => Self::Taken,
            (3, _) => Self::Unknown(text(body)?),
            (4, _) => Self::Found(body),
            (5, true) => Self::Absent,
            (6, _) => Self::Refused(text(body)?),
            _ => return Err(Foreign),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let name = ObjectName::Data(Epoch(3), 0x1234);
        let part = Part { name, offset: 48, len: 4096 };
        let requests = [
            Request::Put(ObjectName::Claim(Epoch(9))),
            Request::Get(name),
            Request::GetPart(part),
            Request::Delete(name),
            Request::Probe,
        ];
        for request in requests {
            let body_len = if matches!(request, Request::Put(_)) { 77 } else { 0 };
            let bytes = request.encode(5, body_len).try_into().expect("56 bytes");
            assert_eq!(Request::decode(&bytes), Ok((5, request, body_len)));
        }
        let replies = [
            Reply::Done,
            Reply::Taken,
            Reply::Unknown("a time-out".into()),
            Reply::Found(vec![0, 255]),
            Reply::Absent,
            Reply::Refused("no".into()),
        ];
        for reply in replies {
            let head = reply.encode(7).try_into().expect("24 bytes");
            if let Reply::Found(bytes) = &reply {
                assert_eq!(Reply::head_of_found(7, bytes.len()), head);
            }
            let (number, kind, body_len) = Reply::decode_head(&head).expect("a reply");
            assert_eq!((number, body_len), (7, reply.body().len() as u64));
            assert_eq!(Reply::decode(kind, reply.body().to_vec()), Ok(reply));
        }
    }

    #[test]
    fn bytes_that_nobody_writes_are_refused() {
        let request = Request::Get(ObjectName::Claim(Epoch(1)));
        let sound: [u8; REQUEST_LEN] = request.encode(1, 0).try_into().expect("56 bytes");
        // A kind of request, a kind of name, a byte that is zero, a claim with a number, a body without a PUT.
        for (at, byte) in [(8, 6), (9, 5), (15, 1), (24, 1), (48, 1)] {
            let mut bytes = sound;
            bytes[at] = byte;
            assert_eq!(Request::decode(&bytes), Err(Foreign), "byte {at}");
        }
        let mut put = Request::Put(ObjectName::Claim(Epoch(1))).encode(1, BODY_LEN_MAX + 1);
        assert_eq!(Request::decode(put[..].try_into().expect("56 bytes")), Err(Foreign));
        put[48..].copy_from_slice(&BODY_LEN_MAX.to_le_bytes());
        assert!(Request::decode(put[..].try_into().expect("56 bytes")).is_ok());
        assert_eq!(Reply::decode(1, vec![1]), Err(Foreign));
        assert_eq!(Reply::decode(7, Vec::new()), Err(Foreign));
        assert_eq!(Reply::decode(6, vec![0xff]), Err(Foreign));
        let mut head: [u8; REPLY_LEN] = Reply::Done.encode(1).try_into().expect("24 bytes");
        head[10] = 1;
        assert_eq!(Reply::decode_head(&head), Err(Foreign));
    }
}
