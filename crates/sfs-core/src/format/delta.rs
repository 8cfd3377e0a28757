//! Deltas: what changed in the tree since the last one.
//!
//! A delta is the concatenation of encoded [`Change`]s, a net effect that is applied whole: first
//! every `Unmap`, then every `Put` and `Delete`, then the mappings that the summaries of the same
//! batch imply and those of every `Map`, then every `Release`.

use bincode::{Decode, Encode};

use super::{Corruption, CorruptionKind, Key, Structure, codec};

/// One change of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Change {
    /// Inode numbers below this one have been given out.
    NextIno(u64),
    /// Blocks `first..=last` of `ino` are no longer mapped.
    Unmap {
        /// The file.
        ino: u64,
        /// First block.
        first: u32,
        /// Last block.
        last: u32,
    },
    /// The item has this value now.
    Put {
        /// Encoded key.
        key: [u8; Key::LEN],
        /// Value.
        value: Vec<u8>,
    },
    /// The item does not exist any more.
    Delete {
        /// Encoded key.
        key: [u8; Key::LEN],
    },
    /// A Drained segment is Clean after this batch.
    Release {
        /// The segment.
        segment: u32,
        /// Its stamp: its place in the order of allocation.
        stamp: u64,
    },
    /// Blocks from `block` of `ino` on, `count` of them, are those from `address` on, in one segment,
    /// which is Placed from now on if it was Clean.
    Map {
        /// The file.
        ino: u64,
        /// First block of the file.
        block: u32,
        /// How many.
        count: u32,
        /// Address of the first.
        address: u64,
    },
}

impl Change {
    /// Decodes a whole delta whose chunk is at block `at`.
    pub fn decode_all(mut bytes: &[u8], at: u64) -> Result<Vec<Self>, Corruption> {
        let mut changes = Vec::new();
        while !bytes.is_empty() {
            let (change, len) = codec::decode(bytes).ok_or(Corruption::new(
                Structure::Delta,
                at,
                CorruptionKind::Value,
            ))?;
            changes.push(change);
            bytes = &bytes[len..];
        }
        Ok(changes)
    }
}
