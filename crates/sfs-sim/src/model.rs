//! The reference model: a simple filesystem in memory, and the comparison of a volume with it.
//!
//! [`operation`] draws operations, [`pair`] performs each on the volume and on the [`mod@reference`], and
//! [`compare`] compares results and content. A difference is a panic with its position. The volume is used
//! through its public operations only.

pub mod access_lists;
pub mod compare;
pub mod content;
pub mod defragmentation;
pub mod digest;
mod file_flags;
pub mod fixture;
mod namespace;
pub mod operation;
pub mod pair;
pub mod random;
pub mod reference;
mod xattrs;
