//! From the shell's answers to fuser's replies.
//!
//! Owns: one function for each kind of reply that fuser has.
//! Promises: a reply is given once, whatever the answer is.
//! Never: asks which request it is for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{
    Errno, FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr,
};
use sfs_fuse::{Answer, DirectoryEntry, Entry, OpenedFlags};

use super::convert;
use crate::fuse::Outcome;

/// Gives a reply if the answer has the form that it needs.
macro_rules! reply {
    ($outcome:expr, $to:ident, $($form:pat => $given:expr),+) => {
        match $outcome {
            $(Ok($form) => $given,)+
            Ok(_) => $to.error(Errno::EIO),
            Err(errno) => $to.error(convert::errno(errno)),
        }
    };
}

pub(super) fn done(outcome: Outcome, to: ReplyEmpty) {
    reply!(outcome, to, Answer::Done => to.ok());
}

pub(super) fn entry(outcome: Outcome, to: ReplyEntry) {
    reply!(outcome, to, Answer::Entry(file) => {
        to.entry(&file.name_ttl, &convert::attributes(&file), Generation(file.generation))
    });
}

pub(super) fn attributes(outcome: Outcome, to: ReplyAttr) {
    reply!(outcome, to, Answer::Attributes(attributes, ttl) => {
        to.attr(&ttl, &convert::file_attr(&attributes))
    });
}

pub(super) fn data(outcome: Outcome, to: ReplyData) {
    reply!(outcome, to, Answer::Data(bytes) => to.data(bytes.as_ref()));
}

pub(super) fn opened(outcome: Outcome, to: ReplyOpen) {
    reply!(outcome, to, Answer::Opened(opened) => {
        to.opened(FileHandle(opened.handle), fopen(opened.flags))
    });
}

pub(super) fn created(outcome: Outcome, to: ReplyCreate) {
    reply!(outcome, to, Answer::Created(file, opened) => {
        let (attributes, handle) = (convert::attributes(&file), FileHandle(opened.handle));
        let generation = Generation(file.generation);
        to.created(&file.name_ttl, &attributes, generation, handle, fopen(opened.flags))
    });
}

pub(super) fn written(outcome: Outcome, to: ReplyWrite) {
    reply!(outcome, to, Answer::Written(count) => to.written(count));
}

pub(super) fn value(outcome: Outcome, to: ReplyXattr) {
    reply!(outcome, to,
        Answer::Length(len) => to.size(len),
        Answer::Data(bytes) => to.data(bytes.as_ref())
    );
}

pub(super) fn offset(outcome: Outcome, to: ReplyLseek) {
    reply!(outcome, to, Answer::Offset(at) => to.offset(i64::try_from(at).unwrap_or(i64::MAX)));
}

pub(super) fn statfs(outcome: Outcome, to: ReplyStatfs) {
    reply!(outcome, to, Answer::Statfs(all) => to.statfs(
        all.blocks,
        all.blocks_free,
        all.blocks_available,
        all.files,
        all.files_free,
        all.block_size,
        all.name_len_max,
        all.fragment_size,
    ));
}

/// Adds an entry with its attributes; says whether there was room.
pub(super) fn add_with(
    to: &mut ReplyDirectoryPlus,
    entry: &DirectoryEntry<'_>,
    file: Option<&Entry>,
) -> bool {
    // Of "." and ".." the kernel uses number and kind.
    let bare = || {
        let attributes = sfs_fuse::Attributes {
            ino: entry.ino,
            mode: entry.mode,
            ..sfs_fuse::Attributes::default()
        };
        Entry { node: entry.ino, attributes, ..Entry::default() }
    };
    let file = file.copied().unwrap_or_else(bare);
    let (attributes, generation) = (convert::attributes(&file), Generation(file.generation));
    let name = OsStr::from_bytes(entry.name);
    !to.add(INodeNo(entry.ino), entry.cookie, name, &file.name_ttl, &attributes, generation)
}

fn fopen(flags: OpenedFlags) -> FopenFlags {
    FopenFlags::from_bits_truncate(flags.bits())
}
