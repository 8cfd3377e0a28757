//! Segments: the usage table, the write clock, and the allocation of blocks in place.
//!
//! [`UsageTable`] decides which state each segment is in and which one is opened next. [`WriteClock`] counts
//! the blocks that users write. [`InPlaceAllocator`] allocates single blocks on volumes whose data is
//! overwritten in place. The module does not read or write the device.

mod in_place;
mod usage_table;
mod write_clock;

pub use in_place::AllocationMemory;
pub(crate) use in_place::InPlaceAllocator;
pub(crate) use usage_table::{Extent, SegmentBudget, UsageTable};
pub(crate) use write_clock::WriteClock;
