//! Replies of the shell, given to fuser's reply objects.
//!
//! [`SendReply`] has one implementation for each object. A reply that the object does not take
//! becomes EIO.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{
    Errno, FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr,
};
use sfs_fuse::{ListingEntry, NodeAttributes, NodeEntry, OpenReplyFlags, Reply};

use super::convert;
use crate::fuse::ReplyResult;

/// Reply object of fuser, which takes one reply.
pub(super) trait SendReply {
    /// Sends `result`.
    fn send(self, result: ReplyResult);
}

/// Implements [`SendReply`] for one reply object by the forms of a reply that it takes.
macro_rules! send {
    ($($object:ty, $to:ident: $($form:pat => $given:expr),+;)*) => { $(
        impl SendReply for $object {
            fn send(self, result: ReplyResult) {
                let $to = self;
                match result {
                    $(Ok($form) => $given,)+
                    Ok(_) => $to.error(Errno::EIO),
                    Err(errno) => $to.error(convert::errno(errno)),
                }
            }
        }
    )* };
}

send! {
    ReplyEmpty, to: Reply::Done => to.ok();
    ReplyEntry, to: Reply::Entry(file) => {
        to.entry(&file.name_ttl, &convert::attributes(&file), Generation(file.generation))
    };
    ReplyAttr, to: Reply::Attributes(attributes, ttl) => {
        to.attr(&ttl, &convert::file_attr(&attributes))
    };
    ReplyData, to: Reply::Data(bytes) => to.data(bytes.as_ref());
    ReplyOpen, to: Reply::Opened(opened) => {
        to.opened(FileHandle(opened.handle), open_flags(opened.flags))
    };
    ReplyCreate, to: Reply::Created(file, opened) => {
        let (attributes, handle) = (convert::attributes(&file), FileHandle(opened.handle));
        let generation = Generation(file.generation);
        to.created(&file.name_ttl, &attributes, generation, handle, open_flags(opened.flags))
    };
    ReplyWrite, to: Reply::Written(count) => to.written(count);
    ReplyXattr, to: Reply::Length(len) => to.size(len), Reply::Data(bytes) => to.data(bytes.as_ref());
    ReplyLseek, to: Reply::Offset(at) => to.offset(i64::try_from(at).unwrap_or(i64::MAX));
    ReplyStatfs, to: Reply::Statfs(all) => to.statfs(
        all.blocks,
        all.blocks_free,
        all.blocks_available,
        all.files,
        all.files_free,
        all.block_size,
        all.name_len_max,
        all.fragment_size,
    );
}

/// Adds an entry with its attributes to a listing. Returns whether there was room.
pub(super) fn add_with_attributes(
    to: &mut ReplyDirectoryPlus,
    entry: &ListingEntry<'_>,
    file: Option<&NodeEntry>,
) -> bool {
    // The kernel uses only the number and the type of "." and "..".
    let bare = || {
        let attributes =
            NodeAttributes { ino: entry.ino, mode: entry.mode, ..NodeAttributes::default() };
        NodeEntry { node: entry.ino, attributes, ..NodeEntry::default() }
    };
    let file = file.copied().unwrap_or_else(bare);
    let (attributes, generation) = (convert::attributes(&file), Generation(file.generation));
    let name = OsStr::from_bytes(entry.name);
    !to.add(INodeNo(entry.ino), entry.cookie, name, &file.name_ttl, &attributes, generation)
}

fn open_flags(flags: OpenReplyFlags) -> FopenFlags {
    FopenFlags::from_bits_truncate(flags.bits())
}
