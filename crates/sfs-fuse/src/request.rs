//! What the kernel asks, out of its bytes.
//!
//! Owns: the header of a request, and its extensions.
//! Promises: a [`Request`] refers to the bytes that it was decoded from, and to nothing else; bytes
//! that are no request are an error.
//! Never: answers.

use crate::abi::{self, ExtHeader, InHeader};
use crate::arguments::{Arguments, Malformed};
use crate::init::InitFlags;
use crate::operation::Operation;

/// A request of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Who waits for the answer.
    pub unique: u64,
    /// The inode that it is about, as an answer to an earlier request has named it; 1 is the root.
    pub node: u64,
    /// The user who asks. Meaningless when the kernel asks for itself, as for what it writes back, and,
    /// with [`InitFlags::ALLOW_IDMAP`], where no file is made.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// The process; 0 for one that we cannot see.
    pub pid: u32,
    /// What else the kernel says, where it was agreed on.
    pub extensions: Extensions<'a>,
    /// What is asked.
    pub operation: Operation<'a>,
}

impl<'a> Request<'a> {
    /// The request that `bytes` are; `agreed` is what the two sides have agreed on at the start.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if they are not exactly one request.
    pub fn decode(bytes: &'a [u8], agreed: InitFlags) -> Result<Self, Malformed> {
        let (header, mut arguments) = split_header(bytes)?;
        let extensions_len = usize::from(header.total_extlen) * 8;
        let rest = arguments.rest();
        let len = rest.len().checked_sub(extensions_len).ok_or(Malformed::Extension)?;
        let (arguments, extensions) = rest.split_at(len);
        Ok(Self {
            unique: header.unique,
            node: header.nodeid,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            extensions: Extensions::decode(extensions)?,
            operation: Operation::decode(header.opcode, Arguments::new(arguments), agreed)?,
        })
    }
}

/// The header of a message, and what is behind it.
pub(crate) fn split_header(bytes: &[u8]) -> Result<(InHeader, Arguments<'_>), Malformed> {
    let mut arguments = Arguments::new(bytes);
    let header: InHeader = arguments.fixed().map_err(|_| Malformed::Length)?;
    match usize::try_from(header.len) {
        Ok(len) if len == bytes.len() => Ok((header, arguments)),
        _ => Err(Malformed::Length),
    }
}

/// What the kernel adds to a request that makes a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions<'a> {
    groups: &'a [u8],
}

impl<'a> Extensions<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut extensions = Self::default();
        let mut left = bytes;
        while !left.is_empty() {
            let mut arguments = Arguments::new(left);
            let header: ExtHeader = arguments.fixed().map_err(|_| Malformed::Extension)?;
            let len = usize::try_from(header.size).map_err(|_| Malformed::Extension)?;
            let body = len.checked_sub(size_of::<ExtHeader>()).ok_or(Malformed::Extension)?;
            let body = arguments.bytes(body).map_err(|_| Malformed::Extension)?;
            if header.kind == abi::EXT_GROUPS {
                extensions.groups = groups(body)?;
            }
            left = arguments.rest();
        }
        Ok(extensions)
    }

    /// Groups of the user beside the first, as far as the kernel says any: with
    /// [`InitFlags::CREATE_SUPP_GROUP`] that of the directory, if the user is in it.
    pub fn groups(&self) -> impl Iterator<Item = u32> + use<'a> {
        let mut arguments = Arguments::new(self.groups);
        std::iter::from_fn(move || arguments.fixed().ok())
    }
}

/// The numbers in a list of groups, which begins with their count.
fn groups(body: &[u8]) -> Result<&[u8], Malformed> {
    let mut arguments = Arguments::new(body);
    let count: u32 = arguments.fixed().map_err(|_| Malformed::Extension)?;
    let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(size_of::<u32>()));
    arguments.bytes(len.ok_or(Malformed::Extension)?).map_err(|_| Malformed::Extension)
}
