//! The manifests of one epoch: which is the newest.

use crate::error::ObjectError;
use crate::frame::{Content, Frame, Manifest};
use crate::gallop;
use crate::mutant::{Mutant, mutated};
use crate::name::{Epoch, ObjectName};
use crate::presence;
use crate::store::ObjectStore;
use crate::thinning::Thinning;

/// A manifest and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) manifest: Manifest,
}

/// The manifests of an epoch.
pub(crate) struct Manifests<'a, S> {
    store: &'a S,
    epoch: Epoch,
    thinning: Thinning,
}

impl<'a, S: ObjectStore> Manifests<'a, S> {
    pub(crate) fn new(store: &'a S, epoch: Epoch, thinning: Thinning) -> Self {
        Self { store, epoch, thinning }
    }

    /// Returns the manifest `number`, or `None` if there is no object or a seal.
    pub(crate) fn get(&self, number: u64) -> Result<Option<Manifest>, ObjectError> {
        let name = ObjectName::Manifest(self.epoch, number);
        let Some(bytes) = self.store.get(name)? else { return Ok(None) };
        match Frame::decode(name, &bytes)?.content {
            Content::Manifest(manifest) => Ok(Some(manifest)),
            _ => Ok(None),
        }
    }

    /// Returns the newest manifest, or `None` if the epoch has none.
    ///
    /// Larger ranks are searched first. A number that was missed because it was deleted meanwhile has a later one of a higher rank:
    /// the last look finds that one, and the search begins again.
    pub(crate) fn newest(&self) -> Result<Option<Numbered>, ObjectError> {
        loop {
            let (middle, large) = (self.thinning.middle(), self.thinning.large());
            let begin = gallop::largest(self.thinning.at_once(), |times| {
                let numbers = times.iter().map(|times| times.saturating_mul(large));
                self.exist(&numbers.collect::<Vec<_>>())
            })? * large;
            let begin = self.last_in_steps(begin, middle)?;
            let number = self.last_in_steps(begin, 1)?;
            if !mutated(Mutant::NewestUnchecked) && self.may_be_deleted(number + 1)? {
                continue;
            }
            if number == 0 {
                return Ok(None);
            }
            if let Some(manifest) = self.get(number)? {
                return Ok(Some(Numbered { number, manifest }));
            }
        }
    }

    /// Returns whether a manifest exists whose presence allows that `number` is deleted.
    pub(crate) fn may_be_deleted(&self, number: u64) -> Result<bool, ObjectError> {
        let later = self.thinning.later_of_higher_rank(number).collect::<Vec<_>>();
        later.iter().try_fold(false, |may, later| Ok(may || self.exist(&[*later])?[0]))
    }

    /// Returns for each of the numbers whether there is an object other than a seal.
    fn exist(&self, numbers: &[u64]) -> Result<Vec<bool>, ObjectError> {
        presence::present(self.store, numbers, |number| ObjectName::Manifest(self.epoch, number))
    }

    /// Returns the last number that exists without a gap from `begin` on, in steps.
    fn last_in_steps(&self, mut begin: u64, step: u64) -> Result<u64, ObjectError> {
        let at_once = self.thinning.at_once();
        loop {
            let numbers =
                (1..=at_once as u64).map(|no| begin.saturating_add(no.saturating_mul(step)));
            let exist = self.exist(&numbers.collect::<Vec<_>>())?;
            let count = exist.iter().take_while(|exists| **exists).count();
            begin += count as u64 * step;
            if count < at_once {
                return Ok(begin);
            }
        }
    }
}
