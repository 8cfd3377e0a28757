//! Losses of dirty data that cannot be written back, because its place in the tree is damaged.
//!
//! Every caller that waits while data is lost gets the error. If no caller waits, the next caller
//! that asks gets it.

use crate::Result;
use crate::format::DecodeError;

/// Losses of dirty data, and how many of them were reported. As with `errseq_t` in Linux, a caller
/// remembers a count and gets the errors after it.
#[derive(Debug, Default)]
pub(crate) struct WritebackErrors {
    count: u64,
    damage: Option<DecodeError>,
    reported: u64,
}

/// Losses over all files, once for each kind of caller that reports them.
#[derive(Debug, Default)]
pub(crate) struct VolumeWritebackErrors {
    /// Reported by a sync of the whole volume.
    pub(crate) syncs: WritebackErrors,
    /// Reported by background work.
    pub(crate) background: WritebackErrors,
    /// Reported by the unmount.
    pub(crate) unmount: WritebackErrors,
}

impl WritebackErrors {
    /// Returns the number of losses so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns whether every loss was reported.
    pub(crate) fn all_reported(&self) -> bool {
        self.reported == self.count
    }

    /// Counts a loss caused by `damage`.
    pub(crate) fn note(&mut self, damage: DecodeError) {
        self.count += 1;
        self.damage = Some(damage);
    }

    /// Returns the number of losses that were reported.
    pub(crate) fn reported(&self) -> u64 {
        self.reported
    }

    /// Reports losses that were never reported.
    pub(crate) fn report_new(&mut self) -> Result<()> {
        self.report(u64::MAX)
    }

    /// Reports losses after the first `before`, and losses that were never reported.
    pub(crate) fn report(&mut self, before: u64) -> Result<()> {
        let is_new = self.count > before.min(self.reported);
        self.reported = self.count;
        match self.damage {
            Some(damage) if is_new => Err(damage.into()),
            _ => Ok(()),
        }
    }
}

impl VolumeWritebackErrors {
    /// Counts a loss for every kind of caller.
    pub(crate) fn note(&mut self, damage: DecodeError) {
        for errors in [&mut self.syncs, &mut self.background, &mut self.unmount] {
            errors.note(damage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Corruption, CorruptionKind, Structure};

    #[test]
    fn a_loss_is_reported_to_every_waiting_caller_and_not_to_later_ones() {
        let mut errors = WritebackErrors::default();
        errors.report(0).expect("nothing was lost");
        let before = errors.count();
        errors.note(Corruption::in_block(Structure::Node, 7, CorruptionKind::Checksum).into());
        errors.report(before).expect_err("the first waiting caller");
        errors.report(before).expect_err("the second waiting caller");
        errors.report(errors.count()).expect("a later caller");
        errors.note(Corruption::in_block(Structure::Node, 7, CorruptionKind::Checksum).into());
        errors.report(errors.count()).expect_err("a loss that was never reported");
    }
}
