//! Structures of a volume, read with tolerance of damage.
//!
//! A reader returns the sound part and reports the rest as findings or as lost ranges of keys. The module
//! does not write to the device.

pub(crate) mod batch;
pub(crate) mod block_set;
pub(crate) mod checkpoint;
pub(crate) mod chunk;
pub(crate) mod dirent;
pub(crate) mod edits;
pub(crate) mod eras;
pub(crate) mod key_range;
pub(crate) mod log_tail;
pub(crate) mod mapping;
pub(crate) mod node;
pub(crate) mod overlay_tree;
pub(crate) mod read_window;
pub(crate) mod recovery_point;
pub(crate) mod roll_forward;
pub(crate) mod segment_scan;
pub(crate) mod superblock;
pub(crate) mod usage;
pub(crate) mod volume;
pub(crate) mod walk;
