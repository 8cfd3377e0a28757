//! Requests: the header of a message of the kernel, its operation and its extensions.
//!
//! A [`FuseRequest`] borrows from the bytes that it was decoded from. Bytes that are not exactly one request are an
//! error.

use crate::protocol::abi::{self, ExtHeader, InHeader};
use crate::protocol::argument_reader::{ArgumentReader, Malformed};
use crate::protocol::fuse_operation::FuseOperation;
use crate::protocol::init_features::InitFlags;

/// Request of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuseRequest<'a> {
    /// Number of the request, which the reply repeats.
    pub unique: u64,
    /// Inode of the operation, by the number that an earlier reply gave it; 1 is the root.
    pub node: u64,
    /// User number of the caller. The number is meaningless for requests of the kernel itself, such
    /// as write-back, and, with [`InitFlags::ALLOW_IDMAP`], for requests that make no file.
    pub uid: u32,
    /// Group number of the caller.
    pub gid: u32,
    /// Process number of the caller; 0 for a process outside our PID namespace.
    pub pid: u32,
    /// Extensions that both sides have agreed on.
    pub extensions: RequestExtensions<'a>,
    /// Operation with its arguments.
    pub operation: FuseOperation<'a>,
    /// Bytes of the whole request; empty for one that did not come from the kernel as bytes.
    pub message: &'a [u8],
}

impl<'a> FuseRequest<'a> {
    /// Returns the inode whose data the request writes, with the number of bytes; `None` if it writes no data. A copy counts
    /// as a write to its target.
    pub fn data_target(&self) -> Option<(u64, usize)> {
        match &self.operation {
            FuseOperation::Write(write) => Some((self.node, write.data.len())),
            FuseOperation::CopyFileRange(copy) => {
                Some((copy.to_node, usize::try_from(copy.len).unwrap_or(usize::MAX)))
            }
            _ => None,
        }
    }

    /// Decodes `bytes`, with the features that both sides have agreed on.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if `bytes` is not exactly one request.
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
            extensions: RequestExtensions::decode(extensions)?,
            operation: FuseOperation::decode(
                header.opcode,
                ArgumentReader::new(arguments),
                agreed,
            )?,
            message: bytes,
        })
    }
}

/// Splits a message into its header and the bytes after it.
pub(crate) fn split_header(bytes: &[u8]) -> Result<(InHeader, ArgumentReader<'_>), Malformed> {
    let mut arguments = ArgumentReader::new(bytes);
    let header: InHeader = arguments.fixed().map_err(|_| Malformed::Length)?;
    match usize::try_from(header.len) {
        Ok(len) if len == bytes.len() => Ok((header, arguments)),
        _ => Err(Malformed::Length),
    }
}

/// Extensions of a request that makes a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestExtensions<'a> {
    groups: &'a [u8],
}

impl<'a> RequestExtensions<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut extensions = Self::default();
        let mut left = bytes;
        while !left.is_empty() {
            let mut arguments = ArgumentReader::new(left);
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

    /// Returns the supplementary groups of the user that the kernel states: with
    /// [`InitFlags::CREATE_SUPP_GROUP`], the group of the directory if the user is a member.
    pub fn groups(&self) -> impl Iterator<Item = u32> + use<'a> {
        let mut arguments = ArgumentReader::new(self.groups);
        std::iter::from_fn(move || arguments.fixed().ok())
    }
}

/// Returns the numbers in a list of groups, which begins with their count.
fn groups(body: &[u8]) -> Result<&[u8], Malformed> {
    let mut arguments = ArgumentReader::new(body);
    let count: u32 = arguments.fixed().map_err(|_| Malformed::Extension)?;
    let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(size_of::<u32>()));
    arguments.bytes(len.ok_or(Malformed::Extension)?).map_err(|_| Malformed::Extension)
}
