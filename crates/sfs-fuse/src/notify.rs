//! Telling the kernel that what it remembers is not true any more.
//!
//! Owns: the messages that nobody has asked for.
//! Promises: what the kernel does not remember is no error.
//! Never: waits for an answer; there is none.

use std::io;
use std::sync::Arc;

use crate::abi::{EXPIRE_ONLY, NotifyInvalEntryOut, NotifyInvalInodeOut, notify};
use crate::door::Door;
use crate::message::Message;

/// Takes away what the kernel remembers.
///
/// The kernel may have to wait for requests that are under way before it can: never from a
/// handler, and never under a lock that a handler takes; but for [`Notifier::directory_changed`].
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Door>);

impl Notifier {
    pub(crate) fn new(door: Arc<Door>) -> Self {
        Self(door)
    }

    /// The attributes of `node`, and its data: `len` bytes from `offset` on, all for a `len` of 0,
    /// none for a negative `offset`.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn invalidate_inode(&self, node: u64, offset: i64, len: i64) -> io::Result<()> {
        let mut message = Message::new(0, notify::INVAL_INODE);
        message.push(&NotifyInvalInodeOut { ino: node, off: offset, len });
        self.0.send(&mut message)
    }

    /// The attributes of `directory`, which has just changed: also those of an answer that the kernel
    /// has not looked at yet. After a change of names it asks again by itself, but such an answer it
    /// believes.
    ///
    /// A handler may call it before it answers: the kernel waits for no request, as it has nothing to write
    /// back of a directory.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn directory_changed(&self, directory: u64) -> io::Result<()> {
        self.invalidate_inode(directory, -1, 0)
    }

    /// What `name` in directory `parent` is, and whatever is below it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn invalidate_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.send_entry(parent, name, 0)
    }

    /// As [`Notifier::invalidate_entry`], for a name that is looked up again before it is
    /// believed; what is open below it stays. Only if [`crate::InitFlags::HAS_EXPIRE_ONLY`] was
    /// agreed on.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.send_entry(parent, name, EXPIRE_ONLY)
    }

    fn send_entry(&self, parent: u64, name: &[u8], flags: u32) -> io::Result<()> {
        let namelen = u32::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let text = [name, b"\0"].concat();
        let mut message = Message::new(0, notify::INVAL_ENTRY);
        message.push(&NotifyInvalEntryOut { parent, namelen, flags });
        self.0.send(&mut message.with_payload(&text))
    }
}
