//! Replies: one variant for each form that the protocol has.
//!
//! [`Reply`] holds values; `message` encodes them. A [`Reply`] does not name its request, so only
//! the kernel detects a reply of the wrong form.

use std::time::Duration;

use crate::protocol::directory_listing::DirectoryListing;
use crate::protocol::node_reply::{NodeAttributes, NodeEntry, OpenReply, Statfs};
use crate::protocol::timestamps::Time;

/// Two numbers of the handler, for [`Handler::answer_parked`](crate::Handler::answer_parked).
pub type Ticket = [u64; 2];

/// Queue in which a request is parked. Each queue has a thread of its own, which answers its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Changes that wait until [`Handler::may_go_on`](crate::Handler::may_go_on): in order for each inode, and in turn for different inodes.
    Changes,
    /// Syncs of files, in order. The thread of the queue may wait in [`Handler::answer_parked`](crate::Handler::answer_parked).
    Syncs(Ticket),
    /// Syncs of the filesystem, in order, likewise.
    WholeSyncs(Ticket),
}

/// Reply of a handler. `B` is the memory that holds data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<B> {
    /// Success without a value.
    Done,
    /// Reference to a file: LOOKUP, MKNOD, MKDIR, SYMLINK, LINK.
    Entry(NodeEntry),
    /// Reference to a file that is open: CREATE, TMPFILE.
    Created(NodeEntry, OpenReply),
    /// Attributes, and the time for which the kernel may cache them: GETATTR, SETATTR.
    Attributes(NodeAttributes, Duration),
    /// Attributes, the time of birth if there is one, and the caching time: STATX.
    Statx(NodeAttributes, Option<Time>, Duration),
    /// Open file or directory: OPEN, OPENDIR.
    Opened(OpenReply),
    /// Data, at most as long as the request allows: READ, READLINK, GETXATTR, LISTXATTR.
    Data(B),
    /// Number of bytes that the handler has put at the beginning of the room that it was given: READ.
    InPlace(usize),
    /// Length, if the request asked only for the length: GETXATTR, LISTXATTR.
    Length(u32),
    /// Number of bytes written: WRITE, COPY_FILE_RANGE.
    Written(u32),
    /// Number of bytes written: COPY_FILE_RANGE_64.
    Copied(u64),
    /// Entries of a directory: READDIR, READDIRPLUS.
    Directory(DirectoryListing),
    /// Figures of the filesystem: STATFS.
    Statfs(Statfs),
    /// Offset: LSEEK.
    Offset(u64),
    /// Block number: BMAP.
    Block(u64),
    /// Lock that conflicts, or F_UNLCK: GETLK.
    Lock {
        /// Offset of the first byte.
        start: u64,
        /// Offset of the last byte.
        end: u64,
        /// F_RDLCK, F_WRLCK or F_UNLCK.
        kind: u32,
        /// Number of the process that has the lock.
        pid: u32,
    },
    /// Return value, and bytes to copy to the argument: IOCTL.
    Ioctl(i32, B),
    /// Events that are ready: POLL.
    Events(u32),
    /// No reply yet: the request waits in this queue, and [`Handler::answer_parked`] gives its reply.
    ///
    /// [`Handler::answer_parked`]: crate::Handler::answer_parked
    Parked(Queue),
}
