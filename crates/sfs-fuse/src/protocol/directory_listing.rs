//! Listings: the entries of a directory, encoded as the kernel reads them.
//!
//! Entries are appended until the next one would exceed the length that the request asked for.

use zerocopy::{FromBytes, IntoBytes};

use crate::protocol::abi::{Dirent, EntryOut};
use crate::protocol::node_reply::NodeEntry;

/// Alignment of entries, in bytes.
const ALIGNMENT: usize = 8;

/// Entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingEntry<'a> {
    /// Inode number, for getdents(2).
    pub ino: u64,
    /// Position in the directory after this entry. A later request continues from it.
    pub cookie: u64,
    /// Mode, of which only the type bits are used.
    pub mode: u32,
    /// Name.
    pub name: &'a [u8],
}

/// Entries of a directory: the reply to READDIR and READDIRPLUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryListing {
    bytes: Vec<u8>,
    len_max: usize,
}

impl DirectoryListing {
    /// Makes a listing without entries that may grow to `len_max` bytes.
    pub fn new(len_max: u32) -> Self {
        Self { bytes: Vec::new(), len_max: usize::try_from(len_max).unwrap_or(usize::MAX) }
    }

    /// Adds an entry for READDIR. Returns whether there was room.
    #[must_use]
    pub fn add(&mut self, entry: &ListingEntry<'_>) -> bool {
        self.append(&[], entry)
    }

    /// Adds an entry for READDIRPLUS. Returns whether there was room. If so, `file` becomes a
    /// reference to its inode, as a reply to LOOKUP does; "." and ".." have no `file`.
    #[must_use]
    pub fn add_with(&mut self, entry: &ListingEntry<'_>, file: Option<&NodeEntry>) -> bool {
        let file = file.copied().unwrap_or_default();
        self.append(file.to_wire().as_bytes(), entry)
    }

    fn append(&mut self, before: &[u8], entry: &ListingEntry<'_>) -> bool {
        let Ok(namelen) = u32::try_from(entry.name.len()) else { return false };
        let kind = entry.mode >> 12 & 0o17;
        let dirent = Dirent { ino: entry.ino, off: entry.cookie, namelen, kind };
        let len = before.len() + size_of::<Dirent>() + entry.name.len();
        let end = self.bytes.len() + len.next_multiple_of(ALIGNMENT);
        if end > self.len_max {
            return false;
        }
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(entry.name);
        self.bytes.resize(end, 0);
        true
    }

    /// Returns the nodes that a reply to READDIRPLUS refers to.
    pub fn nodes(&self) -> Vec<u64> {
        let (mut nodes, mut rest) = (Vec::new(), &self.bytes[..]);
        while let Ok((entry, after)) = EntryOut::read_from_prefix(rest)
            && let Ok((dirent, _)) = Dirent::read_from_prefix(after)
        {
            nodes.extend((entry.nodeid != 0).then_some(entry.nodeid));
            let len = size_of::<EntryOut>() + size_of::<Dirent>() + dirent.namelen as usize;
            rest = rest.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
        nodes
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_knows_the_nodes_that_it_refers_to() {
        let mut listing = DirectoryListing::new(4096);
        for (node, name) in [(0, &b"."[..]), (7, b"a"), (8, b"a longer name"), (9, b"")] {
            let entry = ListingEntry { ino: 1, cookie: 2, mode: 0o100_644, name };
            let file = NodeEntry { node, ..NodeEntry::default() };
            assert!(listing.add_with(&entry, (node > 0).then_some(&file)));
        }
        assert_eq!(listing.nodes(), [7, 8, 9]);
        assert_eq!(DirectoryListing::new(0).nodes(), []);
    }
}
