//! Recovery: making a volume, opening it after an unmount or a crash, and rebuilding its tree.
//!
//! [`open`] reads the superblock and the newest checkpoint, and rolls the log forward. The first write comes
//! after the roll-forward in memory. A writable mount then writes a checkpoint of its own, so that no chunk
//! of an earlier mount can be taken for one of this mount. [`make`] and [`Rebuild`] write a tree from
//! nothing, for `sfs-mkfs` and `sfs-fsck`.

mod apply_batch;
mod components;
mod in_place;
mod make;
mod open;
mod rebuild;
mod roll_forward;

pub(crate) use components::{Components, policies};
pub use make::{make, root_directory};
#[cfg(test)]
pub(crate) use open::read_checkpoints;
pub use open::read_superblock;
pub(crate) use open::{Recovery, open, open_to_write_later};
pub use rebuild::{Basis, Moved, Rebuild};
