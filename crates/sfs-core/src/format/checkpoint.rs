//! Checkpoint slots: a consistent root of the tree, and the position from which the log continues.
//!
//! The payload of a slot keeps the fields of version 1. Later fields are records of the extension area that
//! follows the payload.

use bincode::{Decode, Encode};
use sfs_device::BLOCK_SIZE;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    CHECKPOINT_SLOT_BLOCKS, COUNT_KEPT_MAX, Corruption, CorruptionKind, EXTENSION_LEN_MAX,
    Extensions, FIRST_INO, Head, NodePointer, Structure, codec,
};

const MAGIC: [u8; 4] = *b"SFSp";
const UNSUMMED: usize = 8;

/// The position at which a head appends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HeadRecord {
    /// The head.
    pub head: Head,
    /// Open segment of the head.
    pub segment: u32,
    /// Next block in the segment.
    pub next_block: u32,
}

/// The saved state of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PolicyRecord {
    /// Name of the policy. Other policies ignore the record.
    pub name: String,
    /// State in the policy's own encoding, at most [`POLICY_STATE_LEN_MAX`].
    pub state: Vec<u8>,
}

/// Maximum length in bytes of the state that a policy keeps in a checkpoint.
pub const POLICY_STATE_LEN_MAX: usize = 16 * 1024;

/// Length of a slot in bytes.
const SLOT_LEN: usize = CHECKPOINT_SLOT_BLOCKS as usize * BLOCK_SIZE;

// A policy for grouping and one for victims leave room for all other fields.
const _: () =
    assert!(HEADER_LEN + 2 * POLICY_STATE_LEN_MAX + EXTENSION_LEN_MAX + BLOCK_SIZE <= SLOT_LEN);

/// The content of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CheckpointRecord {
    /// Number of the checkpoint, ascending. Odd numbers go to slot 1, even ones to slot 0.
    pub number: u64,
    /// Sequence number of the first chunk after the checkpoint.
    pub next_sequence: u64,
    /// Checksum of the last chunk before the checkpoint, which the first chunk after it repeats.
    pub previous: u32,
    /// Block address of the tree's root.
    pub root_address: u64,
    /// Checksum of the root.
    pub root_checksum: u32,
    /// Level of the root.
    pub root_level: u8,
    /// Next inode number to give out.
    pub next_ino: u64,
    /// Open heads.
    pub heads: Vec<HeadRecord>,
    /// Number of blocks that users have written so far: the write clock.
    pub blocks_written: u64,
    /// Saved states of policies.
    pub policies: Vec<PolicyRecord>,
    /// `true` if no write was to follow: the volume was unmounted.
    pub unmounted: bool,
    /// Number of times that the volume was mounted for writing.
    pub mount_count: u64,
    /// Number of bytes that users have written since the volume was made.
    pub user_bytes_written: u64,
    /// Number of bytes that SFS has written to the device since the volume was made.
    pub device_bytes_written: u64,
    /// Records of the extension area, which follows the payload and is not part of it.
    pub extensions: Extensions,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    checksum: U32,
    volume: U64,
    address: U64,
    payload_len: U32,
    /// Zero in version 1.
    extension_len: U32,
}

const HEADER_LEN: usize = 32;
const _: () = assert!(size_of::<RawHeader>() == HEADER_LEN);

impl CheckpointRecord {
    /// Returns the pointer to the root of the tree.
    pub fn root(&self) -> NodePointer {
        NodePointer { address: self.root_address, checksum: self.root_checksum }
    }

    /// Returns whether all counts are in range.
    pub fn has_sound_counts(&self) -> bool {
        let counts = [
            self.number,
            self.next_sequence,
            self.next_ino,
            self.blocks_written,
            self.mount_count,
            self.user_bytes_written,
            self.device_bytes_written,
        ];
        self.next_sequence > 0
            && self.next_ino >= FIRST_INO
            && counts.iter().all(|count| *count < COUNT_KEPT_MAX)
    }

    /// Returns the length of the slot's bytes, a multiple of the block size.
    pub fn encoded_len(&self) -> usize {
        self.content_len().next_multiple_of(BLOCK_SIZE)
    }

    /// Returns the number of bytes in the last block behind the record.
    pub fn spare_len(&self) -> usize {
        self.encoded_len() - self.content_len()
    }

    fn content_len(&self) -> usize {
        let mut bytes = vec![0; HEADER_LEN];
        codec::append(self, &mut bytes);
        self.extensions.append_to(&mut bytes);
        bytes.len()
    }

    /// Returns the slot's bytes: whole blocks, as few as hold the record.
    pub fn encode(&self, volume: u64, address: u64) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        codec::append(self, &mut bytes);
        let payload_end = bytes.len();
        self.extensions.append_to(&mut bytes);
        let end = bytes.len();
        bytes.resize(end.next_multiple_of(BLOCK_SIZE), 0);
        assert!(bytes.len() <= SLOT_LEN);
        let mut raw = RawHeader {
            magic: MAGIC,
            checksum: U32::ZERO,
            volume: volume.into(),
            address: address.into(),
            payload_len: ((payload_end - HEADER_LEN) as u32).into(),
            extension_len: ((end - payload_end) as u32).into(),
        };
        bytes[..HEADER_LEN].copy_from_slice(raw.as_bytes());
        raw.checksum = crc32c::crc32c(&bytes[UNSUMMED..end]).into();
        bytes[..HEADER_LEN].copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Verifies and decodes a slot of `CHECKPOINT_SLOT_BLOCKS` blocks, read at block `at`.
    pub fn decode(bytes: &[u8], volume: u64, at: u64) -> Result<Self, Corruption> {
        let wrong = |kind| Corruption::in_block(Structure::Checkpoint, at, kind);
        let (raw, rest) =
            RawHeader::ref_from_prefix(bytes).map_err(|_| wrong(CorruptionKind::Length))?;
        if raw.magic != MAGIC {
            return Err(wrong(CorruptionKind::Magic));
        }
        let (payload, rest) = rest
            .split_at_checked(raw.payload_len.get() as usize)
            .ok_or(wrong(CorruptionKind::Length))?;
        let extension =
            rest.get(..raw.extension_len.get() as usize).ok_or(wrong(CorruptionKind::Length))?;
        let end = HEADER_LEN + payload.len() + extension.len();
        if raw.checksum.get() != crc32c::crc32c(&bytes[UNSUMMED..end]) {
            return Err(wrong(CorruptionKind::Checksum));
        }
        if raw.volume.get() != volume {
            return Err(wrong(CorruptionKind::Volume));
        }
        if raw.address.get() != at {
            return Err(wrong(CorruptionKind::Address));
        }
        let extensions = Extensions::decode_all(extension).ok_or(wrong(CorruptionKind::Value))?;
        match codec::decode::<Self>(payload) {
            Some((record, len)) if len == payload.len() => Ok(Self { extensions, ..record }),
            _ => Err(wrong(CorruptionKind::Value)),
        }
    }
}
