//! Deleting objects that nothing has needed for the grace time.

use std::collections::HashSet;

use super::{Failure, ObjectDevice};
use crate::name::ObjectName;
use crate::store::ObjectStore;

/// Largest number of objects that one call deletes: uploads need the store as well.
const DELETIONS_MAX: usize = 1024;

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    /// Uploads what is due as [`ObjectDevice::upload_due`] does, and then deletes as [`ObjectDevice::collect`] does, by the same clock.
    pub fn work(&self, now: u64) -> Result<(), Failure> {
        self.upload_due(now)?;
        self.collect(|| now);
        Ok(())
    }

    /// Deletes what nothing has needed for the grace time, some objects at once. Uploads go on meanwhile. What the store does not delete is
    /// tried again after another grace time: nothing else depends on it. `now` returns seconds by a clock that nobody sets, so that the
    /// grace time is as long as it should be; it is asked once no upload is under way, for which this may wait for hours.
    pub fn collect(&self, now: impl Fn() -> u64) {
        self.store.free_spares();
        let Some(_turn) = self.collecting.try_lock() else { return };
        let due = self.due_deletions(&now);
        if due.is_empty() {
            return;
        }
        // Manifests name what is to be deleted until it is.
        let left = self.store.delete_all(&due).unwrap_or_else(|_| due.clone());
        let due = due.into_iter().collect::<HashSet<_>>();
        let mut uploader = self.uploader.lock();
        let now = now();
        uploader.garbage.retain(|(name, _)| !due.contains(name));
        // What one object lacks keeps no others from being deleted.
        uploader.garbage.extend(left.into_iter().map(|name| (name, Some(now))));
    }

    /// Returns what may be deleted now.
    fn due_deletions(&self, now: &impl Fn() -> u64) -> Vec<ObjectName> {
        let mut uploader = self.uploader.lock();
        let now = now();
        uploader.garbage.iter_mut().for_each(|(_, since)| *since = since.or(Some(now)));
        let is_due = |since: &Option<u64>| {
            since.is_some_and(|since| now >= since.saturating_add(self.limits.grace_secs))
        };
        let due = uploader.garbage.iter().take_while(|(_, since)| is_due(since));
        due.map(|(name, _)| *name).take(DELETIONS_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use sfs_device::{Block, Device, RamDevice, Stream};

    use crate::frame::Nonce;
    use crate::memory_store::MemoryStore;
    use crate::name::ObjectName;
    use crate::store::{Object, ObjectStore, PutReply, Stopped};
    use crate::volume::{Durability, Limits, OpenRequest, Shape, create};

    const SHAPE: Shape = Shape { volume_blocks: 320, region_blocks: 32 };

    /// A store that never deletes the first object that it is asked to delete.
    #[derive(Default)]
    struct Store {
        objects: MemoryStore,
        asked: Mutex<Vec<ObjectName>>,
    }

    impl ObjectStore for Store {
        fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
            self.objects.put_all(objects)
        }

        fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
            self.objects.get(name)
        }

        fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
            self.objects.delete(name)
        }

        fn delete_all(&self, names: &[ObjectName]) -> Result<Vec<ObjectName>, Stopped> {
            let mut asked = self.asked.lock();
            asked.extend(names);
            let (kept, deleted) = names.iter().partition::<Vec<_>, _>(|name| **name == asked[0]);
            for name in deleted {
                self.objects.delete(name)?;
            }
            Ok(kept)
        }
    }

    /// Regression: one object that could not be deleted, such as a locked one, kept all behind it from being deleted for ever.
    #[test]
    fn an_object_that_is_not_deleted_keeps_no_other() {
        let store = Arc::new(Store::default());
        let request = OpenRequest {
            nonce: Nonce([1; 16]),
            host: "host".into(),
            now: 1_000,
            takes_over: false,
            durability: Durability::Local,
            limits: Limits { grace_secs: 100, ..Limits::of_mount(1 << 30) },
        };
        let cache = Arc::new(RamDevice::new(SHAPE.cache_blocks()));
        let volume = create(store.clone(), cache, ([7; 16], SHAPE), &request).expect("a volume");
        let supersede = |byte: u8| {
            let blocks = vec![Block([byte; 4096]); SHAPE.volume_blocks as usize];
            volume.write(0, &[&blocks], Stream::default()).expect("a write");
            volume.join().expect("a manifest");
        };
        (1..4).for_each(supersede);
        volume.collect(|| 0);
        volume.collect(|| 100);
        let first = std::mem::take(&mut *store.asked.lock());
        assert!(first.len() > 10, "{first:?}");
        let left = first.iter().filter(|name| store.get(**name).expect("memory").is_some());
        assert_eq!(left.collect::<Vec<_>>(), [&first[0]]);
        (4..6).for_each(supersede);
        volume.collect(|| 101);
        store.asked.lock().push(first[0]);
        volume.collect(|| 199);
        assert_eq!(store.asked.lock().len(), 1, "neither the old nor the new ones are due");
        volume.collect(|| 201);
        let second = std::mem::take(&mut *store.asked.lock());
        assert!(second[1..].contains(&first[0]) && second.len() > 10, "{second:?}");
    }
}
