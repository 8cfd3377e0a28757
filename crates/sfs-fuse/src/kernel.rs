//! The kernel's side, for tests: it writes requests and reads answers.
//!
//! Owns: the other half of every encoder and decoder.
//! Promises: it says what the kernel says, byte by byte.
//! Never: shares code with the half that it tests, but for the forms in `abi`.

mod answers;
mod conversations;
mod hostile;
mod requests;

use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::IntoBytes;

use crate::abi::InHeader;

/// What the arguments of a request, or the parts of an answer, are made of.
#[derive(Clone, Debug)]
struct Sample {
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
    ) -> Sample {
        Sample { name, other_name, data, wide, narrow, flag }
    }
}

/// Names of files.
fn names() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("no name has it", |byte| !matches!(byte, 0 | b'/'));
    vec(byte, 1..20)
}

/// A request for `opcode` of inode `node` with `arguments`, and `extensions` behind them.
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

/// `text` with its end.
fn ended(text: &[u8]) -> Vec<u8> {
    [text, b"\0"].concat()
}
