//! A simulated volume: takes users' operations, and counts their cost.

use std::sync::Arc;

use sfs_core::policy::{GroupingPolicy, VictimPolicy};

use super::buffered_log::BufferedLog;
use super::buffering::Buffering;
use super::counters::SimulationCounters;
use super::no_room::NoRoom;
use super::oracle::WriteSchedule;
use super::outcome::SegmentRank;
use super::space::VolumeSize;
use super::writer::SimulatedLogWriter;
use crate::workload::BlockOperation;

/// A volume without a device.
pub struct Simulation {
    log: BufferedLog,
}

impl Simulation {
    /// Returns an empty volume. `tick_log2` is the binary logarithm of the number of blocks in a
    /// tick.
    pub fn new(
        space: &VolumeSize,
        buffering: Buffering,
        grouping: Box<dyn GroupingPolicy>,
        victims: Box<dyn VictimPolicy>,
        tick_log2: u32,
    ) -> Self {
        let writer = SimulatedLogWriter::new(space, grouping, victims, tick_log2);
        Self { log: BufferedLog::new(writer, buffering, space.blocks) }
    }

    /// Replaces histories by the times of death in `schedule`, for a policy that knows the future.
    pub fn set_schedule(&mut self, schedule: Option<Arc<WriteSchedule>>) {
        self.log.writer.set_schedule(schedule);
    }

    /// Returns the counts since [`Simulation::start_counting`].
    pub fn counters(&self) -> &SimulationCounters {
        &self.log.writer.counters
    }

    /// Sets all counters to zero, at the end of a warm-up.
    pub fn start_counting(&mut self) {
        self.log.writer.counters = SimulationCounters::default();
    }

    /// Adds the Sealed segments and the room that holds no data, as they are now, to the counters.
    pub fn sample(&mut self) {
        self.log.writer.log.sample(&mut self.log.writer.counters);
    }

    /// Returns the Sealed segments with live blocks, the hottest first, as they are now.
    pub fn ranks(&self) -> Vec<SegmentRank> {
        self.log.writer.log.ranks(self.log.writer.now())
    }

    /// Carries out a user's operation.
    ///
    /// # Errors
    ///
    /// If the log has no room to go on.
    pub fn operate(&mut self, operation: BlockOperation) -> Result<(), NoRoom> {
        if operation.is_delete() {
            self.log.delete(operation.block());
            Ok(())
        } else {
            self.log.write(operation.block())
        }
    }
}
