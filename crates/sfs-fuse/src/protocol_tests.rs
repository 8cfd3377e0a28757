//! Tests of the protocol from the kernel's side, which write requests and read replies, byte by
//! byte.
//!
//! The encoders and decoders here are written anew and share only the structures in `abi` with the code under test.

mod malformed_requests;
mod parked_requests;
mod replies;
mod requests;
mod whole_sessions;

use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::IntoBytes;

use crate::protocol::abi::InHeader;

/// Values for the arguments of a request, or for the parts of a reply.
#[derive(Clone, Debug)]
struct RequestSample {
    name: Vec<u8>,
    other_name: Vec<u8>,
    data: Vec<u8>,
    wide: [u64; 7],
    narrow: [u32; 5],
    flag: bool,
}

prop_compose! {
    fn samples()(
        name in names(),
        other_name in names(),
        data in vec(any::<u8>(), 0..64),
        wide in any::<[u64; 7]>(),
        narrow in any::<[u32; 5]>(),
        flag in any::<bool>(),
    ) -> RequestSample {
        RequestSample { name, other_name, data, wide, narrow, flag }
    }
}

/// Generates names of files.
fn names() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("no NUL and no '/'", |byte| !matches!(byte, 0 | b'/'));
    vec(byte, 1..20)
}

/// Encodes a request for `opcode` of inode `node` with `arguments`, and `extensions` after them.
fn message(opcode: u32, node: u64, arguments: &[u8], extensions: &[u8]) -> Vec<u8> {
    let len = size_of::<InHeader>() + arguments.len() + extensions.len();
    let header = InHeader {
        len: len as u32,
        opcode,
        unique: 42,
        nodeid: node,
        uid: 1000,
        gid: 100,
        pid: 7,
        total_extlen: (extensions.len() / 8) as u16,
        padding: 0,
    };
    [header.as_bytes(), arguments, extensions].concat()
}

/// Returns `text` with its NUL.
fn ended(text: &[u8]) -> Vec<u8> {
    [text, b"\0"].concat()
}
