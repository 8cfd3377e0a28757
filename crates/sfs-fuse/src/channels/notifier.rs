//! Notifications: messages that tell the kernel to drop parts of its cache.
//!
//! A notification has no reply. An inode or name that the kernel has not cached is no error.

use std::io;
use std::sync::Arc;

use crate::channels::fuse_channel::FuseChannel;
use zerocopy::IntoBytes;

use crate::protocol::abi::{
    EXPIRE_ONLY, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyPruneOut, PRUNE_MINOR, notify,
};
use crate::protocol::message::Message;

/// Maximum number of nodes in one message.
const PRUNED_NODES_MAX: usize = 512;

/// Sender of notifications.
///
/// The kernel may wait for requests that are under way before it drops a part of its cache. Except
/// for [`Notifier::attributes_changed`], neither a handler nor a thread that holds a lock which a
/// handler takes may call these methods.
#[derive(Clone, Debug)]
pub struct Notifier {
    channel: Arc<FuseChannel>,
    minor: u32,
}

impl Notifier {
    /// Returns a sender over `channel` to a kernel whose protocol has minor version `minor`.
    pub(crate) fn new(channel: Arc<FuseChannel>, minor: u32) -> Self {
        Self { channel, minor }
    }

    /// Asks the kernel to drop the unused nodes among `nodes`: a node that no process uses, and
    /// that has no cached children, is forgotten, and FORGET requests follow. Other nodes stay as
    /// they are.
    ///
    /// # Errors
    ///
    /// `Unsupported` before protocol 7.45; errors of write(2).
    pub fn prune(&self, nodes: &[u64]) -> io::Result<()> {
        if self.minor < PRUNE_MINOR {
            return Err(io::ErrorKind::Unsupported.into());
        }
        for nodes in nodes.chunks(PRUNED_NODES_MAX) {
            let mut message = Message::new(0, notify::PRUNE);
            let count = nodes.len() as u32;
            message.push(&NotifyPruneOut { count, ..NotifyPruneOut::default() });
            self.channel.send(&mut message.with_payload(nodes.as_bytes()))?;
        }
        Ok(())
    }

    /// Asks the kernel to send again every request that was read and not answered, over any channel of the mount.
    ///
    /// # Errors
    ///
    /// `InvalidInput` before Linux 6.9; errors of write(2).
    pub fn resend(&self) -> io::Result<()> {
        self.channel.send(&mut Message::new(0, notify::RESEND))
    }

    /// Invalidates the attributes of `node`, and `len` bytes of its data from `offset` on: all data
    /// from there on for a `len` of 0, no data for a negative `offset`.
    ///
    /// # Errors
    ///
    /// Errors of write(2).
    pub fn invalidate_inode(&self, node: u64, offset: i64, len: i64) -> io::Result<()> {
        let mut message = Message::new(0, notify::INVAL_INODE);
        message.push(&NotifyInvalInodeOut { ino: node, off: offset, len });
        self.channel.send(&mut message)
    }

    /// Invalidates the attributes of `node`, which have just changed, including attributes in a reply that the kernel has
    /// not processed yet. After a change of names the kernel requests those of the directory again by itself, but
    /// without the notification the kernel would accept such a reply. Data that the kernel has cached stays.
    ///
    /// A handler may call this method before it replies, for a directory and for the inode of its request: no data is
    /// written back, so the kernel waits for no request, and the caller keeps the inode.
    ///
    /// # Errors
    ///
    /// Errors of write(2).
    pub fn attributes_changed(&self, node: u64) -> io::Result<()> {
        self.invalidate_inode(node, -1, 0)
    }

    /// Invalidates `name` in directory `parent`, and everything below it.
    ///
    /// # Errors
    ///
    /// Errors of write(2).
    pub fn invalidate_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.send_entry(parent, name, 0)
    }

    /// Expires `name` in directory `parent`: the kernel looks the name up again before its next
    /// use, and files that are open below the name stay open. Needs
    /// [`crate::InitFlags::HAS_EXPIRE_ONLY`].
    ///
    /// # Errors
    ///
    /// Errors of write(2).
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.send_entry(parent, name, EXPIRE_ONLY)
    }

    fn send_entry(&self, parent: u64, name: &[u8], flags: u32) -> io::Result<()> {
        let namelen = u32::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let text = [name, b"\0"].concat();
        let mut message = Message::new(0, notify::INVAL_ENTRY);
        message.push(&NotifyInvalEntryOut { parent, namelen, flags });
        self.channel.send(&mut message.with_payload(&text))
    }
}
