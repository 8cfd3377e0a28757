//! Memory of blocks: a pool of mapped regions, and buffers of dirty blocks that are counted.
//!
//! [`Pool`] hands out [`BlockBuf`]s and keeps the returned memory for the next use. A [`DirtyBuf`] is a
//! `BlockBuf` whose bytes count against the write buffer's budget. [`BlockRef`] shares one block of a buffer
//! between the file, a chunk and a write request; a shared block does not change.

mod dirty_buf;
mod pool;

pub(crate) use dirty_buf::{BlockRef, DirtyBuf};
pub(crate) use pool::{BlockBuf, Pool};
