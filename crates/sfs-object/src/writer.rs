//! The writer of a volume: one epoch, from its claim to the seal of another writer.

use crate::decide::{Decision, decide, decide_all};
use crate::error::ObjectError;
use crate::frame::{Content, Frame, Manifest, Nonce};
use crate::mutant::{Mutant, mutated};
use crate::name::{Epoch, ObjectName};
use crate::store::ObjectStore;
use crate::takeover::{self, Recovered, Sealer};
use crate::thinning::Thinning;

/// A log object that the writer has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogObject(pub ObjectName);

/// The owner of an epoch. Nothing may be appended before the first manifest is published.
pub struct Writer<'a, S> {
    store: &'a S,
    nonce: Nonce,
    epoch: Epoch,
    thinning: Thinning,
    manifests: u64,
    log: u64,
    data: u64,
}

impl<'a, S: ObjectStore> Writer<'a, S> {
    /// Claims an epoch, seals those before it, and returns the state that they leave: `None` if the volume has none yet.
    ///
    /// `nonce` is drawn for this call, and never used again.
    pub fn take_over(
        store: &'a S,
        nonce: Nonce,
        thinning: Thinning,
    ) -> Result<(Self, Option<Recovered>), ObjectError> {
        let epoch = takeover::claim(store, nonce)?;
        let recovered = Sealer { store, nonce, epoch, thinning }.seal_all()?;
        Ok((Self { store, nonce, epoch, thinning, manifests: 0, log: 0, data: 0 }, recovered))
    }

    /// Returns the epoch of this writer.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the number of the next log object.
    pub fn next_log(&self) -> u64 {
        self.log + 1
    }

    /// Stores log objects with these contents, all at once, and returns when all are part of the volume.
    ///
    /// After an error some may be: those before the first one that is not ours.
    ///
    /// # Errors
    ///
    /// [`ObjectError::TakenOver`] or [`ObjectError::Superseded`] if another writer has the volume. Nothing may be appended
    /// after any error.
    pub fn append(&mut self, contents: &[&[u8]]) -> Result<Vec<LogObject>, ObjectError> {
        assert!(self.manifests > 0, "a log object before the first manifest is lost");
        let names = (self.next_log()..).map(|number| ObjectName::Log(self.epoch, number));
        let frames = names.zip(contents).map(|(name, content)| (name, self.data(content)));
        let frames = frames.collect::<Vec<_>>();
        for ((name, _), decision) in frames.iter().zip(decide_all(self.store, &frames)?) {
            if mutated(Mutant::AcknowledgedOutOfOrder) && name != &frames[frames.len() - 1].0 {
                continue;
            }
            self.check(decision)?;
        }
        self.log += frames.len() as u64;
        Ok(frames.iter().map(|(name, _)| LogObject(*name)).collect())
    }

    /// Stores an object that no one reads before a manifest names it.
    pub fn put_data(&mut self, content: &[u8]) -> Result<ObjectName, ObjectError> {
        self.data += 1;
        let name = ObjectName::Data(self.epoch, self.data);
        self.check(decide(self.store, name, self.data(content))?)?;
        Ok(name)
    }

    /// Publishes a state that contains all log objects before `log_start`, which is at most [`Writer::next_log`].
    pub fn publish(&mut self, log_start: u64, state: Vec<u8>) -> Result<(), ObjectError> {
        assert!(log_start <= self.next_log(), "the state would contain undecided log objects");
        self.manifests += 1;
        let name = ObjectName::Manifest(self.epoch, self.manifests);
        let content = Content::Manifest(Manifest { log_start, state });
        self.check(decide(self.store, name, Frame { nonce: self.nonce, content })?)
    }

    /// Publishes a state, and then deletes objects that it does not need: `unneeded`, and manifests by the rule of
    /// [`Thinning`]. The store waits for the grace time before it deletes.
    pub fn publish_and_delete(
        &mut self,
        log_start: u64,
        state: Vec<u8>,
        unneeded: &[ObjectName],
    ) -> Result<(), ObjectError> {
        if mutated(Mutant::DeletedEarly) {
            unneeded.iter().try_for_each(|name| self.store.delete(*name))?;
        }
        self.publish(log_start, state)?;
        let manifests = self.thinning.deletable_after(self.manifests).into_iter();
        let manifests = manifests.map(|number| ObjectName::Manifest(self.epoch, number));
        let names = unneeded.iter().copied().chain(manifests).collect::<Vec<_>>();
        names.into_iter().try_for_each(|name| Ok(self.store.delete(name)?))
    }

    fn data(&self, content: &[u8]) -> Frame {
        Frame { nonce: self.nonce, content: Content::Data(content.to_vec()) }
    }

    /// Returns an error if a name of this epoch is not ours.
    fn check(&self, decision: Decision) -> Result<(), ObjectError> {
        let epoch = self.epoch;
        match decision {
            Decision::Ours => Ok(()),
            Decision::Theirs(Frame { nonce, content: Content::Seal(by) }) => {
                Err(ObjectError::TakenOver { epoch, by, nonce })
            }
            Decision::Theirs(Frame { nonce, .. }) => {
                Err(ObjectError::TakenOver { epoch, by: epoch, nonce })
            }
            Decision::Deleted => Err(ObjectError::Superseded(epoch)),
        }
    }
}
