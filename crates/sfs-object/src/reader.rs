//! Reading the newest state beside a writer.

use crate::error::ObjectError;
use crate::frame::{Content, Frame, Manifest};
use crate::manifests::Manifests;
use crate::mutant::{Mutant, mutated};
use crate::name::{Epoch, ObjectName};
use crate::store::ObjectStore;
use crate::takeover::{self, Recovered};
use crate::thinning::Thinning;

/// Returns the newest state of the volume: everything that was acknowledged before the call, and perhaps more.
///
/// Objects that the state names may be deleted by the writer later, after the grace time: who misses one calls again.
///
/// # Errors
///
/// [`ObjectError::NoVolume`] if there is no manifest.
pub fn read_newest(store: &impl ObjectStore, thinning: Thinning) -> Result<Recovered, ObjectError> {
    loop {
        let (place, manifest) = newest(store, thinning)?;
        let log = takeover::read_log(store, place.epoch, manifest.log_start)?;
        // A log object that was deleted meanwhile looks like the end. It is deleted only after a newer manifest.
        let now = match mutated(Mutant::ReaderUnchecked) {
            false => newest(store, thinning)?.0,
            true => place,
        };
        if (place.epoch, place.number) == (now.epoch, now.number) {
            let Place { epoch, number, .. } = place;
            return Ok(Recovered { epoch, number, manifest, log });
        }
    }
}

/// Place of the newest manifest, by which a reader tells with few requests whether it is still the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The newest epoch that was claimed. Those behind `epoch` had no manifest.
    newest_claim: u64,
    pub(crate) epoch: Epoch,
    number: u64,
}

impl Place {
    /// Returns the epoch and the number of the manifest.
    pub(crate) fn manifest(&self) -> (Epoch, u64) {
        (self.epoch, self.number)
    }

    /// Returns whether no manifest is newer.
    ///
    /// A manifest that was newer and is deleted has a later one of a higher rank, or an epoch behind it.
    pub(crate) fn is_newest(
        &self,
        store: &impl ObjectStore,
        thinning: Thinning,
    ) -> Result<bool, ObjectError> {
        if store.get(ObjectName::Claim(Epoch(self.newest_claim + 1)))?.is_some() {
            let (now, _) = newest(store, thinning)?;
            return Ok((now.epoch, now.number) == (self.epoch, self.number));
        }
        for epoch in (self.epoch.0 + 1..=self.newest_claim).map(Epoch) {
            if Manifests::new(store, epoch, thinning).newest()?.is_some() {
                return Ok(false);
            }
        }
        let manifests = Manifests::new(store, self.epoch, thinning);
        Ok(!manifests.exists(self.number + 1)? && !manifests.may_be_deleted(self.number + 1)?)
    }
}

/// Returns the newest manifest of the newest epoch that has one, and its place.
pub(crate) fn newest(
    store: &impl ObjectStore,
    thinning: Thinning,
) -> Result<(Place, Manifest), ObjectError> {
    let newest_claim = takeover::newest_claim(store, thinning)?;
    for epoch in (1..=newest_claim).rev().map(Epoch) {
        if let Some(newest) = Manifests::new(store, epoch, thinning).newest()? {
            return Ok((Place { newest_claim, epoch, number: newest.number }, newest.manifest));
        }
    }
    Err(ObjectError::NoVolume)
}

/// Returns the newest manifest of the first of these epochs that has one, and its place. The newest of an epoch is never deleted.
pub(crate) fn newest_of(
    store: &impl ObjectStore,
    epochs: [Epoch; 2],
    thinning: Thinning,
) -> Result<Option<(Place, Manifest)>, ObjectError> {
    let newest_claim = takeover::newest_claim(store, thinning)?;
    for epoch in epochs.into_iter().filter(|epoch| (1..=newest_claim).contains(&epoch.0)) {
        if let Some(newest) = Manifests::new(store, epoch, thinning).newest()? {
            let place = Place { newest_claim, epoch, number: newest.number };
            return Ok(Some((place, newest.manifest)));
        }
    }
    Ok(None)
}

/// Returns the content of a log object or of joined ones that a state names.
///
/// # Errors
///
/// [`ObjectError::Missing`]: if the newest manifest still names the object, the volume is damaged; else the state is old, and the
/// caller reads the newest one.
pub fn read_data(store: &impl ObjectStore, name: ObjectName) -> Result<Vec<u8>, ObjectError> {
    content_of(name, store.get(name)?)
}

/// Calls `found` with the name and content of each of several such objects, in their order. Some are read at once.
///
/// # Errors
///
/// Those of [`read_data`], and of `found`.
pub(crate) fn for_each_data<E: From<ObjectError>>(
    store: &impl ObjectStore,
    names: &[ObjectName],
    mut found: impl FnMut(ObjectName, Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    for names in names.chunks(takeover::LOG_READS_AT_ONCE) {
        let objects = store.get_all(names).map_err(ObjectError::from)?;
        for (name, bytes) in names.iter().zip(objects) {
            found(*name, content_of(*name, bytes)?)?;
        }
    }
    Ok(())
}

fn content_of(name: ObjectName, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, ObjectError> {
    let bytes = bytes.ok_or(ObjectError::Missing(name))?;
    match Frame::decode(name, &bytes)?.content {
        Content::Data(data) => Ok(data),
        _ => Err(ObjectError::Missing(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Nonce;
    use crate::memory_store::MemoryStore;
    use crate::store::Object;

    fn put(store: &MemoryStore, name: ObjectName, content: Content) {
        let bytes = Frame { nonce: Nonce([1; 16]), content }.encode(name);
        store.put_all(&[Object { name, bytes }]).expect("memory");
    }

    /// An attacker who can write to the bucket puts objects of any number there, with a right checksum.
    #[test]
    fn numbers_that_no_writer_reaches_are_damage() {
        let manifest = |log_start| Content::Manifest(Manifest { log_start, state: Vec::new() });
        let claims = MemoryStore::default();
        let manifests = MemoryStore::default();
        put(&manifests, ObjectName::Claim(Epoch(1)), Content::Claim);
        let small = (1..=64).flat_map(|number| [number, number * Thinning::OF_VOLUMES.large()]);
        for number in small.chain((0..64).map(|bit| 1 << bit)) {
            put(&claims, ObjectName::Claim(Epoch(number)), Content::Claim);
            put(&manifests, ObjectName::Manifest(Epoch(1), number), manifest(1));
        }
        for store in [&claims, &manifests] {
            let found = read_newest(store, Thinning::OF_VOLUMES);
            assert!(matches!(found, Err(ObjectError::Damaged(_))), "{found:?}");
        }
        for log_start in [0, u64::MAX] {
            let store = MemoryStore::default();
            put(&store, ObjectName::Claim(Epoch(1)), Content::Claim);
            put(&store, ObjectName::Manifest(Epoch(1), 1), manifest(log_start));
            let found = read_newest(&store, Thinning::OF_VOLUMES);
            assert_eq!(found, Err(ObjectError::Damaged(ObjectName::Manifest(Epoch(1), 1))));
        }
    }
}
