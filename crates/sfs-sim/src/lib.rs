//! Deterministic worlds: the whole filesystem core, its crashes, and a model of what it promises.
//!
//! Owns: the reference model, crash states, and the exploration of both.
//! Promises: a seed decides everything; a failure prints the one command that replays it.
//! Never: asks for the time to decide anything, or draws entropy.
#![forbid(unsafe_code)]

pub mod ace;
pub mod case;
pub mod check;
pub mod crash;
pub mod explore;
pub mod history;
pub mod image;
pub mod lying;
pub mod model;
pub mod panics;
pub mod shrink;
pub mod version_1;
pub mod world;
