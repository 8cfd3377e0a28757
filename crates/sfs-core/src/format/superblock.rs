//! The superblock: identity, layout and features of a volume, in two copies.
//!
//! Both copies have the same content. A copy with a higher generation is newer; an update writes
//! the first copy, then the backup, each followed by a flush, so one of them is whole at every
//! moment. A third copy, the locator, is used for its `layout` alone.

use std::hash::Hasher as _;

use sfs_device::BLOCK_SIZE;
use siphasher::sip::SipHasher13;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    COUNT_MAX, Corruption, CorruptionKind, DataLayout, ErrorKind, FORMAT_VERSION, Failure,
    Features, Incompatibility, Layout, Structure, Timestamp, Tolerance,
};

const MAGIC: [u8; 8] = *b"SFS-log\n";

/// Length of a label in bytes.
const LABEL_LEN: usize = 64;

/// A volume's name: at most 64 bytes of UTF-8 without control characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label([u8; LABEL_LEN]);

impl Label {
    /// No label.
    pub const NONE: Self = Self([0; LABEL_LEN]);

    /// Returns the label `text`; `None` if it is too long or has control characters.
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; LABEL_LEN];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        (!text.chars().any(char::is_control)).then_some(Self(bytes))
    }

    /// Returns whether [`Label::new`] can make this label.
    fn is_sound(&self) -> bool {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(LABEL_LEN);
        str::from_utf8(&self.0[..len]).ok().and_then(Self::new) == Some(*self)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|b| *b == 0).unwrap_or(LABEL_LEN);
        str::from_utf8(&self.0[..len]).unwrap_or("")
    }
}

/// The superblock of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Format version of this copy: 1, or [`FORMAT_VERSION`].
    pub version: u32,
    /// Number of this state of the superblock: 0 in version 1, from 1 on in version 2. The copy with the higher number
    /// is valid.
    pub generation: u64,
    /// Feature words of the volume.
    pub features: Features,
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// Name of the volume.
    pub label: Label,
    /// Areas on the device.
    pub layout: Layout,
    /// Secret key of the hash of names, against names that are chosen to collide.
    pub hash_key: [u64; 2],
    /// Layout of file data.
    pub data_layout: DataLayout,
    /// Time at which the volume was made.
    pub created: Timestamp,
    /// Base-2 logarithm of the number of blocks in a tick of the write clock; below 64.
    pub tick_shift: u32,
    /// The error that ended writing, until `sfs-fsck` has cleared it.
    pub failure: Option<Failure>,
    /// Identity of the cache of the volume; zeros without one.
    pub cache_uuid: [u8; 16],
    /// Random number of the last program that has begun to write to a volume with a cache; zeros if no cache has the content of the
    /// volume.
    pub epoch: [u8; 16],
    /// Bytes of a newer program after the known fields, without trailing zeros.
    pub unknown: Vec<u8>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    checksum: U32,
    version: U32,
    incompatible: U64,
    uuid: [u8; 16],
    label: [u8; LABEL_LEN],
    block_count: U64,
    segment_first: U64,
    segment_blocks: U32,
    segment_count: U32,
    slots: [U64; 2],
    backup: U64,
    hash_key: [U64; 2],
    created_secs: I64,
    created_nanos: U32,
    data_layout: U32,
    // Zero in version 1 from here on.
    compatible: U64,
    read_only_compatible: U64,
    generation: U64,
    tick_shift: U32,
    failure_kind: U32,
    failure_at: U64,
    failure_secs: I64,
    cache_uuid: [u8; 16],
    epoch: [u8; 16],
}

const RAW_LEN: usize = 264;
const _: () = assert!(size_of::<RawSuperblock>() == RAW_LEN);

/// The checksum covers everything after itself.
const UNSUMMED: usize = 12;

/// Format version before feature words, generations and a stored tick.
const VERSION_FIRST: u32 = 1;

/// Base-2 logarithm, rounded down, of the size of a new volume in ticks; a tick has at least one
/// block.
const TICKS_LOG2: u32 = 18;

impl Superblock {
    /// Returns a superblock of the current version for `layout`, without label and identity.
    pub fn new(layout: Layout) -> Self {
        Self {
            version: FORMAT_VERSION,
            generation: 1,
            features: Features::default(),
            uuid: [0; 16],
            label: Label::NONE,
            layout,
            hash_key: [0; 2],
            data_layout: DataLayout::default(),
            created: Timestamp::default(),
            tick_shift: tick_shift_of(&layout),
            failure: None,
            cache_uuid: [0; 16],
            epoch: [0; 16],
            unknown: Vec::new(),
        }
    }

    /// Makes the volume one with the cache `uuid`, or with `None` one without a cache.
    pub fn set_cache(&mut self, uuid: Option<[u8; 16]>) {
        self.epoch = [0; 16];
        self.cache_uuid = uuid.unwrap_or_default();
        match uuid {
            Some(_) => self.features.read_only_compatible |= Features::CACHE,
            None => self.features.read_only_compatible &= !Features::CACHE,
        }
    }

    /// Returns the next generation of this superblock in the current version. `None` if the
    /// generation of this superblock is the last one that decodes, which only a forged volume has.
    pub fn next_generation(&self) -> Option<Self> {
        let generation = self.generation + 1;
        let is_countable = generation < COUNT_MAX;
        is_countable.then(|| Self { version: FORMAT_VERSION, generation, ..self.clone() })
    }

    /// Returns the volume number that every structure of the volume repeats. With data in place a user's block can be
    /// the first of a segment. The number is then secret, so that users cannot write a block that passes as a chunk.
    pub fn volume(&self) -> u64 {
        match self.data_layout {
            DataLayout::Log => u64::from_le_bytes(self.uuid[..8].try_into().expect("eight bytes")),
            _ => {
                let mut hasher = SipHasher13::new_with_keys(self.hash_key[0], self.hash_key[1]);
                hasher.write(&self.uuid);
                hasher.finish()
            }
        }
    }

    /// Returns the tolerance of unknown structures in the tree and the log.
    pub fn tolerance(&self) -> Tolerance {
        if self.features.has_unknown() { Tolerance::Newer } else { Tolerance::Exact }
    }

    /// Returns the block of the superblock.
    ///
    /// # Panics
    ///
    /// If the version is not [`FORMAT_VERSION`]: older superblocks are upgraded before they are written.
    pub fn encode(&self) -> [u8; BLOCK_SIZE] {
        assert_eq!(self.version, FORMAT_VERSION, "an older superblock is upgraded first");
        let layout = &self.layout;
        let (failure_kind, failure_at, failure_secs) = match self.failure {
            Some(failure) => (failure.kind.code(), failure.at, failure.secs),
            None => (0, 0, 0),
        };
        let mut raw = RawSuperblock {
            magic: MAGIC,
            checksum: U32::ZERO,
            version: self.version.into(),
            incompatible: (self.features.incompatible | Features::of(self.data_layout)).into(),
            uuid: self.uuid,
            label: self.label.0,
            block_count: layout.block_count.into(),
            segment_first: layout.segment_first.into(),
            segment_blocks: layout.segment_blocks.into(),
            segment_count: layout.segment_count.into(),
            slots: layout.slots.map(U64::new),
            backup: layout.backup.into(),
            hash_key: self.hash_key.map(U64::new),
            created_secs: self.created.secs.into(),
            created_nanos: self.created.nanos.into(),
            data_layout: (self.data_layout as u32).into(),
            compatible: self.features.compatible.into(),
            read_only_compatible: self.features.read_only_compatible.into(),
            generation: self.generation.into(),
            tick_shift: self.tick_shift.into(),
            failure_kind: failure_kind.into(),
            failure_at: failure_at.into(),
            failure_secs: failure_secs.into(),
            cache_uuid: self.cache_uuid,
            epoch: self.epoch,
        };
        let mut bytes = [0; BLOCK_SIZE];
        bytes[..RAW_LEN].copy_from_slice(raw.as_bytes());
        bytes[RAW_LEN..][..self.unknown.len()].copy_from_slice(&self.unknown);
        raw.checksum = crc32c::crc32c(&bytes[UNSUMMED..]).into();
        bytes[..RAW_LEN].copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Returns whether `bytes` begin with the magic number of SFS; nothing else is checked.
    pub fn recognize(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Returns the reason why this program cannot read the volume of a newer program with the superblock `bytes`.
    /// `None` also for bytes with a wrong magic number or checksum, which are damaged. Every version has magic
    /// number, checksum, version and incompatible features at the same offsets.
    pub fn incompatibility_of(bytes: &[u8; BLOCK_SIZE]) -> Option<Incompatibility> {
        let (raw, _) = RawSuperblock::ref_from_prefix(bytes).ok()?;
        let is_sound =
            raw.magic == MAGIC && raw.checksum.get() == crc32c::crc32c(&bytes[UNSUMMED..]);
        let version = raw.version.get();
        let unknown = raw.incompatible.get() & !Features::INCOMPATIBLE_KNOWN;
        match is_sound {
            true if version > FORMAT_VERSION => Some(Incompatibility::Version(version)),
            true if unknown != 0 => Some(Incompatibility::Features(unknown)),
            _ => None,
        }
    }

    /// Returns the reason why this program must not write to the volume, if there is one.
    pub fn write_incompatibility(&self) -> Option<Incompatibility> {
        let unknown = self.features.read_only_compatible & !Features::READ_ONLY_COMPATIBLE_KNOWN;
        (unknown != 0).then_some(Incompatibility::ReadOnlyFeatures(unknown))
    }

    /// Verifies and decodes a superblock that was read at block `at`.
    pub fn decode(bytes: &[u8; BLOCK_SIZE], at: u64) -> Result<Self, Corruption> {
        let wrong = |kind| Corruption::in_block(Structure::Superblock, at, kind);
        let (raw, rest) =
            RawSuperblock::ref_from_prefix(bytes).map_err(|_| wrong(CorruptionKind::Length))?;
        if raw.magic != MAGIC {
            return Err(wrong(CorruptionKind::Magic));
        }
        if raw.checksum.get() != crc32c::crc32c(&bytes[UNSUMMED..]) {
            return Err(wrong(CorruptionKind::Checksum));
        }
        raw.superblock(rest).filter(Self::is_sound).ok_or(wrong(CorruptionKind::Value))
    }

    fn is_sound(&self) -> bool {
        let is_first = self.version == VERSION_FIRST && self.generation == 0;
        let is_present = self.version == FORMAT_VERSION && self.generation > 0;
        let known = self.features.incompatible & Features::INCOMPATIBLE_KNOWN;
        (is_first || is_present)
            && known == self.features.incompatible
            && known == Features::of(self.data_layout)
            && self.generation < COUNT_MAX
            && self.tick_shift < u64::BITS
            && self.created.nanos < 1_000_000_000
            && self.label.is_sound()
            && self.layout.is_sound()
    }
}

impl RawSuperblock {
    /// Returns the decoded superblock; `None` if a field has no valid value.
    fn superblock(&self, rest: &[u8]) -> Option<Superblock> {
        let layout = Layout {
            block_count: self.block_count.get(),
            segment_first: self.segment_first.get(),
            segment_blocks: self.segment_blocks.get(),
            segment_count: self.segment_count.get(),
            slots: self.slots.map(U64::get),
            backup: self.backup.get(),
        };
        let first = Superblock {
            version: self.version.get(),
            generation: 0,
            features: Features { incompatible: self.incompatible.get(), ..Features::default() },
            uuid: self.uuid,
            label: Label(self.label),
            hash_key: self.hash_key.map(U64::get),
            data_layout: DataLayout::decode(self.data_layout.get())?,
            created: Timestamp { secs: self.created_secs.get(), nanos: self.created_nanos.get() },
            tick_shift: tick_shift_of(&layout),
            failure: None,
            cache_uuid: [0; 16],
            epoch: [0; 16],
            unknown: Vec::new(),
            layout,
        };
        if first.version == VERSION_FIRST {
            return Some(first);
        }
        let features = Features {
            compatible: self.compatible.get(),
            read_only_compatible: self.read_only_compatible.get(),
            ..first.features
        };
        let failure = match self.failure_kind.get() {
            0 => None,
            code => Some(Failure {
                kind: ErrorKind::of_code(code),
                at: self.failure_at.get(),
                secs: self.failure_secs.get(),
            }),
        };
        let generation = self.generation.get();
        Some(Superblock {
            generation,
            features,
            tick_shift: self.tick_shift.get(),
            failure,
            cache_uuid: self.cache_uuid,
            epoch: self.epoch,
            unknown: rest[..rest.len() - trailing_zeros(rest)].to_vec(),
            ..first
        })
    }
}

fn trailing_zeros(bytes: &[u8]) -> usize {
    bytes.iter().rev().take_while(|byte| **byte == 0).count()
}

/// Returns the base-2 logarithm of the blocks in a tick, which mkfs chooses and every volume of
/// version 1 has: all segments together are 2^18 to 2^19 ticks, or a tick is one block.
fn tick_shift_of(layout: &Layout) -> u32 {
    let size = u64::from(layout.segment_count) * u64::from(layout.segment_blocks);
    size.max(1).ilog2().saturating_sub(TICKS_LOG2)
}
