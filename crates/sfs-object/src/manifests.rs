//! The manifests of one epoch: which is the newest.

use std::collections::{BTreeMap, BTreeSet};

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
            let number = Search::new(self).last()?;
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
    ///
    /// The lower rank is asked about first, by a request of its own: one that was deleted already has one of the higher rank behind it.
    pub(crate) fn may_be_deleted(&self, number: u64) -> Result<bool, ObjectError> {
        let mut later = self.thinning.later_of_higher_rank(number);
        later.try_fold(false, |may, later| Ok(may || self.exists(later)?))
    }

    /// Returns whether there is an object other than a seal.
    pub(crate) fn exists(&self, number: u64) -> Result<bool, ObjectError> {
        Ok(self.exist(&[number])?[0])
    }

    /// Returns for each of the numbers, in ascending order, whether there is an object other than a seal.
    fn exist(&self, numbers: &[u64]) -> Result<Vec<bool>, ObjectError> {
        presence::present(self.store, numbers, |number| ObjectName::Manifest(self.epoch, number))
    }
}

/// Search for the last of the manifests that exist without a gap, in steps that become smaller.
struct Search<'a, S> {
    manifests: &'a Manifests<'a, S>,
    /// The first answer about each number: whether it exists.
    answers: BTreeMap<u64, bool>,
}

impl<'a, S: ObjectStore> Search<'a, S> {
    fn new(manifests: &'a Manifests<'a, S>) -> Self {
        Self { manifests, answers: BTreeMap::new() }
    }

    /// Returns the number of the last one, or 0.
    fn last(&mut self) -> Result<u64, ObjectError> {
        self.ask(&self.first_question())?;
        let thinning = self.manifests.thinning;
        let begin = gallop::largest(thinning.at_once(), |times| {
            let numbers = times.iter().map(|times| times.saturating_mul(thinning.large()));
            self.exist(&numbers.collect::<Vec<_>>())
        })? * thinning.large();
        let begin = self.last_in_steps(begin, thinning.middle())?;
        self.last_in_steps(begin, 1)
    }

    /// Returns the numbers that tell everything of an epoch with few manifests.
    fn first_question(&self) -> Vec<u64> {
        let thinning = self.manifests.thinning;
        let at_once = thinning.at_once() as u64;
        let smallest = (1..=at_once).chain((1..=at_once / 2).map(|no| no * thinning.middle()));
        let all = smallest.chain([thinning.large()]).collect::<BTreeSet<_>>();
        all.into_iter().collect()
    }

    /// Returns the last number that exists without a gap from `begin` on, in steps.
    fn last_in_steps(&mut self, mut begin: u64, step: u64) -> Result<u64, ObjectError> {
        let at_once = self.manifests.thinning.at_once();
        loop {
            let next = |no: u64| begin.saturating_add(no.saturating_mul(step));
            let exist = self.exist(&(1..=at_once as u64).map(next).collect::<Vec<_>>())?;
            let count = exist.iter().take_while(|exists| **exists).count();
            begin += count as u64 * step;
            if count < at_once {
                return Ok(begin);
            }
        }
    }

    /// Returns for each of the numbers, in ascending order, whether it exists; those behind the first that is missing count as missing.
    fn exist(&mut self, numbers: &[u64]) -> Result<Vec<bool>, ObjectError> {
        let is_known = |number: &&u64| self.answers.get(number) == Some(&true);
        let known = numbers.iter().take_while(is_known).count();
        let is_missing = |number: &u64| self.answers.get(number) == Some(&false);
        if !numbers.get(known).is_none_or(is_missing) {
            self.ask(&numbers[known..])?;
        }
        let mut is_behind = false;
        Ok(numbers
            .iter()
            .map(|number| {
                is_behind |= self.answers.get(number) != Some(&true);
                !is_behind
            })
            .collect())
    }

    fn ask(&mut self, numbers: &[u64]) -> Result<(), ObjectError> {
        let answers = self.manifests.exist(numbers)?;
        for (number, exists) in numbers.iter().zip(answers) {
            self.answers.entry(*number).or_insert(exists);
        }
        Ok(())
    }
}
