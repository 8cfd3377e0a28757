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
        let (epoch, number, manifest) = newest(store, thinning)?;
        let log = takeover::read_log(store, epoch, manifest.log_start)?;
        // A log object that was deleted meanwhile looks like the end. It is deleted only after a newer manifest.
        let (epoch_now, number_now, _) = match mutated(Mutant::ReaderUnchecked) {
            false => newest(store, thinning)?,
            true => (epoch, number, manifest.clone()),
        };
        if (epoch, number) == (epoch_now, number_now) {
            return Ok(Recovered { epoch, number, manifest, log });
        }
    }
}

/// Returns the newest manifest of the newest epoch that has one.
fn newest(
    store: &impl ObjectStore,
    thinning: Thinning,
) -> Result<(Epoch, u64, Manifest), ObjectError> {
    for epoch in (1..=takeover::newest_claim(store)?).rev().map(Epoch) {
        if let Some(newest) = Manifests::new(store, epoch, thinning).newest()? {
            return Ok((epoch, newest.number, newest.manifest));
        }
    }
    Err(ObjectError::NoVolume)
}

/// Returns the content of a log object or of joined ones that a state names.
///
/// # Errors
///
/// [`ObjectError::Missing`]: if the newest manifest still names the object, the volume is damaged; else the state is old, and the
/// caller reads the newest one.
pub fn read_data(store: &impl ObjectStore, name: ObjectName) -> Result<Vec<u8>, ObjectError> {
    let bytes = store.get(name)?.ok_or(ObjectError::Missing(name))?;
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
        for bit in 0..64 {
            put(&claims, ObjectName::Claim(Epoch(1 << bit)), Content::Claim);
            put(&manifests, ObjectName::Manifest(Epoch(1), 1 << bit), manifest(1));
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
