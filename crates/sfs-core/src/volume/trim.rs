//! Discarding free space at the request of a user: fstrim(8).
//!
//! A request is done in steps, so that the caller can pause between them: a device that is busy with discards serves no
//! one else.

use super::Volume;
use crate::clean::Trim;
use crate::request::TrimRange;
use crate::{Error, Result};

impl Volume {
    /// Begins to discard the Clean segments that lie within `range` as a whole.
    ///
    /// # Errors
    ///
    /// `NotSupported` if the device cannot discard; `ReadOnly` or `Stopped` if nothing may be written.
    pub fn begin_trim(&self, range: &TrimRange) -> Result<Trim> {
        self.health.check_writable()?;
        if !self.io.can_discard() {
            return Err(Error::NotSupported);
        }
        Ok(Trim::new(&self.superblock.layout(), range))
    }

    /// Returns the first byte of the device that `trim` has not looked at.
    pub fn trim_position(&self, trim: &Trim) -> u64 {
        trim.position(&self.superblock.layout())
    }

    /// Discards the next run of segments. Returns the number of its bytes; `None` at the end. Syncs and commits wait
    /// for a step.
    ///
    /// # Errors
    ///
    /// `ReadOnly` or `Stopped` if nothing may be written any more.
    pub fn trim_step(&self, trim: &mut Trim) -> Result<Option<u64>> {
        self.health.check_writable()?;
        Ok(self.space.trim_step(trim))
    }
}
