//! The log of a volume, simulated without a device: segments, open segments of each group, a cleaner
//! and a write buffer.
//!
//! [`Experiment`] fills a [`Simulation`], warms it up and measures it; the result is a
//! [`SimulationOutcome`]. The simulation reports the same events to the policies as a
//! volume. The policies alone choose groups and victims, and the result follows from the seed.

mod buffer;
mod buffered_log;
mod buffering;
mod cleaner;
mod counters;
mod experiment;
mod log;
mod no_room;
mod oracle;
mod outcome;
mod space;
mod volume;
mod writer;

pub use buffering::{Buffering, SyncRemainder, WriteOutPolicy};
pub use counters::{HISTOGRAM_BINS, SimulationCounters};
pub use experiment::{Experiment, MetadataOverhead, ProgressFn};
pub use no_room::NoRoom;
pub use oracle::{ORACLE, ORACLE_VICTIMS, OracleGrouping, OracleVictims, WriteSchedule};
pub use outcome::{SegmentRank, SimulationOutcome, share};
pub use space::{VolumeSize, VolumeSizeRequest};
pub use volume::Simulation;
