//! The reference model: a filesystem in memory that is too simple to be wrong, and the volume
//! beside it.
//!
//! Owns: what every operation must answer, and what must be there afterwards.
//! Promises: a seed decides everything; a difference is a panic that says where.
//! Never: looks into the volume, but through its operations.

pub mod compare;
pub mod content;
pub mod digest;
mod namespace;
pub mod operation;
pub mod pair;
pub mod random;
pub mod reference;
pub mod rig;
