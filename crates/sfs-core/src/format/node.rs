//! The header and checksum of a tree node, and pointers to nodes.
//!
//! A leaf is `header, slots ascending by key, free space, values growing from the end`; a slot is
//! `key, offset of the value, its length`. An inner node is `header, entries ascending by key`; an
//! entry is `smallest key of the child, pointer to it`.

use sfs_device::BLOCK_SIZE;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{COUNT_MAX, Corruption, CorruptionKind, Structure};

const MAGIC: [u8; 4] = *b"SFSn";

/// Number of bytes before the checksummed bytes: the magic number and the checksum.
const UNSUMMED: usize = 8;

/// Address and checksum of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodePointer {
    /// Block address.
    pub address: u64,
    /// The checksum in the node's header.
    pub checksum: u32,
}

impl NodePointer {
    /// Length of an encoded pointer in bytes.
    pub const LEN: usize = 12;

    /// Returns the first bytes of the node, which its checksum leaves out.
    pub fn head(self) -> [u8; UNSUMMED] {
        let mut head = [0; UNSUMMED];
        head[..4].copy_from_slice(&MAGIC);
        head[4..].copy_from_slice(&self.checksum.to_le_bytes());
        head
    }

    /// Returns the on-device form.
    pub fn encode(self) -> [u8; Self::LEN] {
        let raw = RawPointer { address: self.address.into(), checksum: self.checksum.into() };
        zerocopy::transmute!(raw)
    }

    /// Decodes the on-device form.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let raw: RawPointer = zerocopy::transmute!(*bytes);
        Self { address: raw.address.get(), checksum: raw.checksum.get() }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPointer {
    address: U64,
    checksum: U32,
}

const _: () = assert!(size_of::<RawPointer>() == NodePointer::LEN);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    checksum: U32,
    volume: U64,
    address: U64,
    checkpoint: U64,
    item_count: U16,
    level: u8,
    reserved: [u8; 29],
}

/// The header of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeHeader {
    /// Level: 0 for a leaf, otherwise one more than the children's.
    pub level: u8,
    /// Number of items or entries.
    pub item_count: u16,
}

impl NodeHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 64;

    /// Writes the header with the node's checksum over the start of `bytes`, and returns the checksum.
    pub fn seal(
        self,
        bytes: &mut [u8; BLOCK_SIZE],
        volume: u64,
        address: u64,
        checkpoint: u64,
    ) -> u32 {
        let mut raw = RawHeader {
            magic: MAGIC,
            checksum: U32::ZERO,
            volume: volume.into(),
            address: address.into(),
            checkpoint: checkpoint.into(),
            item_count: self.item_count.into(),
            level: self.level,
            reserved: [0; 29],
        };
        bytes[..Self::LEN].copy_from_slice(raw.as_bytes());
        let checksum = crc32c::crc32c(&bytes[UNSUMMED..]);
        raw.checksum = checksum.into();
        bytes[..Self::LEN].copy_from_slice(raw.as_bytes());
        checksum
    }

    /// Returns whether `bytes` begin like a node of volume `volume`. The rest of the node is not verified.
    pub fn begins(bytes: &[u8], volume: u64) -> bool {
        RawHeader::ref_from_prefix(bytes)
            .is_ok_and(|(raw, _)| raw.magic == MAGIC && raw.volume.get() == volume)
    }

    /// Returns the address in a whole node of volume `volume`; `None` for other bytes.
    pub(super) fn address_of(bytes: &[u8; BLOCK_SIZE], volume: u64) -> Option<u64> {
        let (raw, _) = RawHeader::ref_from_prefix(bytes).ok()?;
        let is_node =
            Self::begins(bytes, volume) && raw.checksum.get() == crc32c::crc32c(&bytes[UNSUMMED..]);
        is_node.then(|| raw.address.get())
    }

    /// Verifies a node that was read through `pointer`: magic number, checksum (of header and pointer),
    /// volume, address, and range of the checkpoint number. The items are not checked.
    ///
    /// # Errors
    ///
    /// The [`Corruption`] of the first wrong one in this list.
    pub fn verify(
        bytes: &[u8; BLOCK_SIZE],
        volume: u64,
        pointer: NodePointer,
    ) -> Result<Self, Corruption> {
        let wrong = |kind| Err(Corruption::in_block(Structure::Node, pointer.address, kind));
        let Ok((raw, _)) = RawHeader::ref_from_prefix(bytes) else {
            return wrong(CorruptionKind::Length);
        };
        if raw.magic != MAGIC {
            return wrong(CorruptionKind::Magic);
        }
        let checksum = crc32c::crc32c(&bytes[UNSUMMED..]);
        if raw.checksum.get() != checksum || checksum != pointer.checksum {
            return wrong(CorruptionKind::Checksum);
        }
        if raw.volume.get() != volume {
            return wrong(CorruptionKind::Volume);
        }
        if raw.address.get() != pointer.address {
            return wrong(CorruptionKind::Address);
        }
        if raw.checkpoint.get() >= COUNT_MAX {
            return wrong(CorruptionKind::Value);
        }
        Ok(Self { level: raw.level, item_count: raw.item_count.get() })
    }

    /// Returns the checksum in the header of `bytes`, without verifying it. `sfs-fsck` finds nodes
    /// without their parents, and needs the checksum for a pointer to the node.
    pub fn checksum_of(bytes: &[u8; BLOCK_SIZE]) -> u32 {
        RawHeader::ref_from_prefix(bytes).map_or(0, |(raw, _)| raw.checksum.get())
    }

    /// Returns the number of the checkpoint for which a verified node was written.
    pub fn checkpoint_of(bytes: &[u8; BLOCK_SIZE]) -> u64 {
        RawHeader::ref_from_prefix(bytes).map_or(0, |(raw, _)| raw.checkpoint.get())
    }
}

const _: () = assert!(size_of::<RawHeader>() == NodeHeader::LEN);
