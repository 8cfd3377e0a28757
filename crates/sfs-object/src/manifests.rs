//! The manifests of one epoch: which is the newest.

use crate::error::ObjectError;
use crate::frame::{Content, Frame, Manifest};
use crate::gallop;
use crate::mutant::{Mutant, mutated};
use crate::name::{Epoch, NUMBER_MAX, ObjectName};
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
            let begin = gallop::largest(|times| self.exists(times * large))? * large;
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
        for later in self.thinning.later_of_higher_rank(number) {
            if self.exists(later)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether there is an object other than a seal. One that is damaged counts: only the newest has to be sound.
    pub(crate) fn exists(&self, number: u64) -> Result<bool, ObjectError> {
        let name = ObjectName::Manifest(self.epoch, number);
        if number > NUMBER_MAX {
            return Err(ObjectError::Damaged(name));
        }
        let Some(bytes) = self.store.get(name)? else { return Ok(false) };
        Ok(!matches!(Frame::decode(name, &bytes), Ok(Frame { content: Content::Seal(_), .. })))
    }

    /// Returns the last number that exists without a gap from `begin` on, in steps.
    fn last_in_steps(&self, mut begin: u64, step: u64) -> Result<u64, ObjectError> {
        while self.exists(begin + step)? {
            begin += step;
        }
        Ok(begin)
    }
}
