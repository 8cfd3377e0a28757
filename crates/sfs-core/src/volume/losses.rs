//! What was given up because it could not be written, and who has been told.
//!
//! Owns: the count, which goes up only.
//! Promises: who waits while something is given up is told, and if nobody does the next who asks.
//! Never: gives anything up.

use crate::Result;
use crate::format::Corruption;

/// Losses, as one kind of listener hears of them.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    count: u64,
    damage: Option<Corruption>,
    told: u64,
}

/// The losses of all files, for each who listens.
#[derive(Debug, Default)]
pub(crate) struct AllLosses {
    /// Who syncs everything.
    pub(crate) syncs: Losses,
    /// Background work, for the log.
    pub(crate) work: Losses,
    /// The unmount.
    pub(crate) close: Losses,
}

impl Losses {
    /// Losses so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Something is lost because of `damage`.
    pub(crate) fn note(&mut self, damage: Corruption) {
        self.count += 1;
        self.damage = Some(damage);
    }

    /// The error, if something was lost that nobody has been told of.
    pub(crate) fn tell_news(&mut self) -> Result<()> {
        self.tell(u64::MAX)
    }

    /// The error, if something was lost after the first `before` losses, or that nobody has been told of.
    pub(crate) fn tell(&mut self, before: u64) -> Result<()> {
        let is_new = self.count > before.min(self.told);
        self.told = self.count;
        match self.damage {
            Some(damage) if is_new => Err(damage.into()),
            _ => Ok(()),
        }
    }
}

impl AllLosses {
    /// As [`Losses::note`], for all.
    pub(crate) fn note(&mut self, damage: Corruption) {
        for losses in [&mut self.syncs, &mut self.work, &mut self.close] {
            losses.note(damage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{CorruptionKind, Structure};

    #[test]
    fn everybody_who_waits_is_told_and_later_nobody() {
        let mut losses = Losses::default();
        losses.tell(0).expect("nothing is lost");
        let before = losses.count();
        losses.note(Corruption::new(Structure::Node, 7, CorruptionKind::Checksum));
        losses.tell(before).expect_err("the first who waits");
        losses.tell(before).expect_err("the second");
        losses.tell(losses.count()).expect("who comes later");
        losses.note(Corruption::new(Structure::Node, 7, CorruptionKind::Checksum));
        losses.tell(losses.count()).expect_err("nobody has been told");
    }
}
