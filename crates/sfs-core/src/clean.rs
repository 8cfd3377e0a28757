//! Cleaning: empties segments by moving their live blocks.
//!
//! [`Cleaner`] chooses victims, reads their live blocks and verifies them; the caller commits the moved blocks and
//! reports back. The original of a moved block is not overwritten before the copy is durable, because its segment
//! becomes Clean only after the delta that maps the copy (least recently freed first: no write overwrites the
//! only copy of a block). [`watermarks`] decides when cleaning is due, and [`Discards`] discards Clean
//! segments on the device. The module neither commits nor waits for the log.

mod choice;
mod cleaner;
mod discards;
mod excluded;
mod file_window;
mod futility;
mod live_block;
mod observer;
mod progress;
mod read_live;
mod room;
mod round;
pub(crate) mod watermarks;

pub(crate) use cleaner::{Cleaner, CleanerParts, ReadStep};
pub(crate) use discards::Discards;
pub use discards::Trim;
pub(crate) use file_window::FileWindow;
pub use observer::{Cleaned, CleaningObserver};
pub(crate) use progress::{GarbageBlocks, StallDetector};
pub(crate) use round::CleaningRound;
