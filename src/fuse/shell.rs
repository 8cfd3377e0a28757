//! What the FUSE methods share: the volume they call, and the answers that come again and again.
//!
//! Owns: the errno of a failure, and logging it; what `-o sync` and `-o dirsync` ask for.
//! Promises: every answer is given once.
//! Never: decodes a request.

use std::sync::Arc;
use std::time::Duration;

use fuser::{
    Errno, FileHandle, FopenFlags, Generation, INodeNo, ReplyCreate, ReplyEmpty, ReplyEntry,
    ReplyXattr, Request,
};
use sfs_core::request::{AttributeChanges, Caller, Entry};
use sfs_core::{Error, Result, Volume};

use crate::background::Alarm;
use crate::options::{MountOptions, Sync};
use crate::{attributes, errno};

/// We are the only ones who change the volume: what the kernel knows stays true.
pub(super) const TTL: Duration = Duration::from_secs(24 * 3600);

/// Inode numbers are never used again.
pub(super) const GENERATION: Generation = Generation(0);

/// There is no state of an open file.
pub(super) const HANDLE: FileHandle = FileHandle(0);

/// Answers with an error and ends the method.
macro_rules! or_error {
    ($self:ident, $ino:ident, $reply:ident, $outcome:expr) => {
        match $outcome {
            Ok(value) => value,
            Err(error) => return $reply.error($self.errno($ino, &error)),
        }
    };
}

pub(super) use or_error;

/// A volume as fuser sees it.
pub(crate) struct Shell {
    pub(super) volume: Arc<Volume>,
    pub(super) alarm: Arc<Alarm>,
    pub(super) writeback: bool,
    pub(super) sync: Sync,
    device: String,
}

impl Shell {
    pub(crate) fn new(
        volume: Arc<Volume>,
        alarm: Arc<Alarm>,
        options: &MountOptions,
        device: String,
    ) -> Self {
        Self { volume, alarm, writeback: options.writeback, sync: options.sync, device }
    }

    /// What the kernel is told of an operation on `ino` that has failed.
    pub(super) fn errno(&self, ino: INodeNo, error: &Error) -> Errno {
        if errno::is_failure(error) {
            tracing::error!("{}: inode {ino}: {error}", self.device);
        }
        errno::of(error)
    }

    /// After an operation on the names of directory `ino`.
    pub(super) fn names_changed(&self, ino: u64) -> Result<()> {
        self.alarm.note();
        if self.sync == Sync::Never { Ok(()) } else { self.volume.sync_file(ino) }
    }

    /// Answers with a file that has just got a name in `parent`.
    pub(super) fn reply_new(&self, parent: INodeNo, entry: Result<Entry>, reply: ReplyEntry) {
        let entry = or_error!(self, parent, reply, entry);
        or_error!(self, parent, reply, self.names_changed(parent.0));
        reply.entry(&TTL, &attributes::of(entry.ino, &entry.inode), GENERATION);
    }

    /// Answers after a name in `parent` has changed.
    pub(super) fn reply_done(&self, parent: INodeNo, outcome: Result<()>, reply: ReplyEmpty) {
        or_error!(self, parent, reply, outcome);
        or_error!(self, parent, reply, self.names_changed(parent.0));
        reply.ok();
    }

    /// Answers with a file that has just been made in `parent`, and is open.
    pub(super) fn reply_open(&self, parent: INodeNo, entry: Result<Entry>, reply: ReplyCreate) {
        let entry = or_error!(self, parent, reply, entry);
        or_error!(self, parent, reply, self.names_changed(parent.0));
        let attributes = attributes::of(entry.ino, &entry.inode);
        reply.created(&TTL, &attributes, GENERATION, HANDLE, FopenFlags::FOPEN_KEEP_CACHE);
    }

    pub(super) fn sync_file(&self, ino: INodeNo, reply: ReplyEmpty) {
        or_error!(self, ino, reply, self.volume.sync_file(ino.0));
        reply.ok();
    }

    pub(super) fn truncate_on_open(&self, request: &Request, ino: u64, flags: i32) -> Result<()> {
        if flags & libc::O_TRUNC == 0 {
            return Ok(());
        }
        let changes = AttributeChanges {
            size: Some(0),
            kill_privileges: request.uid() != 0,
            keep_times: self.writeback,
            ..AttributeChanges::default()
        };
        self.volume.set_attributes(ino, &changes, &caller(request))?;
        self.alarm.note();
        Ok(())
    }
}

pub(super) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), now: attributes::now() }
}

/// Answers with a value whose length the kernel may only want to know.
pub(super) fn reply_value(value: &[u8], size: u32, reply: ReplyXattr) {
    match size {
        0 => reply.size(value.len() as u32),
        size if value.len() > size as usize => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}
