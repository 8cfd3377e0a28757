//! The bytes of a volume: encoding and decoding of every structure of `docs/FORMAT.md`.
//!
//! A decoder verifies the checksum, where the structure has one, and the range of each field. No decoder
//! panics on bytes from a device. The module does not read a device.
//!
//! To add an on-disk field:
//! 1. Choose its place: a record of the checkpoint's extension area, a tagged change of a delta, an extension record
//!    of a mapping run, appended bytes of an inode, or bytes of the superblock that are still zero.
//! 2. Choose the rule for programs that do not know it: a class ([`ExtensionClass`], the class of a change) or a
//!    bit in [`Features`].
//! 3. State it in `docs/FORMAT.md`, then encode and decode it here; bytes without it must keep their meaning.
//! 4. Add golden bytes to `tests/format_golden.rs` and hostile bytes to `tests/decoders.rs`; no old constant changes.
//! 5. Have `sfs-fsck` check it and its `dump` show it.

mod access_list;
mod calendar;
mod checkpoint;
mod chunk;
pub mod codec;
mod constants;
mod corruption;
mod data_layout;
mod delta;
mod delta_form;
mod encoding;
mod era;
mod errors;
mod extension;
mod failure;
mod features;
mod file_count;
mod head;
mod history;
mod inode;
mod key;
mod layout;
mod mapping;
mod misplaced;
mod node;
mod reservation;
mod superblock;
mod table_segments;
mod tolerance;
mod usage;
mod wear_bytes;
mod wear_ledger;

pub use access_list::{ACCESS_LIST_LEN_MAX, AccessList, AccessListKind};
pub use calendar::{Day, Month, UtcTime};
pub use checkpoint::{CheckpointRecord, HeadRecord, POLICY_STATE_LEN_MAX, PolicyRecord};
pub use chunk::{
    ChunkHeader, ChunkSummary, SummaryCheck, SummaryEntry, summary_blocks, summary_len,
};
pub use constants::{
    CHECKPOINT_SLOT_BLOCKS, COUNT_KEPT_MAX, COUNT_MAX, FILE_BLOCKS_MAX, FIRST_INO, FORMAT_VERSION,
    HEADS_MAX, INLINE_LEN_MAX, LOCATOR_ADDRESS, NAME_LEN_MAX, ROOT_INO, SUPERBLOCK_ADDRESS,
    SYMLINK_LEN_MAX, VALUE_LEN_MAX, XATTR_LEN_MAX,
};
pub use corruption::{Corruption, CorruptionKind, Location, Structure};
pub use data_layout::DataLayout;
pub use delta::{Change, DELTA_LEN_MAX, is_allowed_in_delta};
pub use delta_form::DeltaForm;
pub use encoding::Encoding;
pub use era::LogEra;
pub use errors::{ERROR_KINDS_MAX, ErrorCount, ErrorCounts, Occurrence, Remembered};
pub use extension::{EXTENSION_LEN_MAX, Extension, ExtensionClass, Extensions};
pub use failure::{ErrorKind, Failure};
pub use features::{Features, Incompatibility};
pub use file_count::FileCount;
pub use head::{Group, Head};
pub use history::History;
pub use inode::{FileKind, Inode, InodeFlags, Timestamp};
pub use key::{ItemKind, Key};
pub use layout::{Layout, LayoutError, SEGMENTS_MIN};
pub use mapping::{Mapping, MappingRun, RUN_BLOCKS, run_key};
pub use misplaced::misplaced;
pub use node::{NodeHeader, NodePointer};
pub use reservation::{Reservation, ReservationTotals};
pub use superblock::{Label, Superblock};
pub use table_segments::TableSegments;
pub use tolerance::{DecodeError, Tolerance};
pub use usage::{ERASES_MAX, SegmentState, USAGE_PER_ITEM, UsageEntry, usage_key};
pub use wear_bytes::WearBytes;
pub use wear_ledger::{WearLedger, WriteSpeed};
