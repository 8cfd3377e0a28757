//! A store in memory, without faults.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::name::ObjectName;
use crate::store::{Object, ObjectStore, PutReply, Stopped};

/// A store in memory, for tests.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<BTreeMap<ObjectName, Vec<u8>>>);

impl MemoryStore {
    /// Returns the names of all objects.
    pub fn names(&self) -> Vec<ObjectName> {
        self.0.lock().keys().copied().collect()
    }

    /// Stores one object, unless its name is taken.
    pub fn put(&self, object: &Object) -> PutReply {
        let mut objects = self.0.lock();
        if objects.contains_key(&object.name) {
            return PutReply::Taken;
        }
        objects.insert(object.name, object.bytes.clone());
        PutReply::Stored
    }
}

impl ObjectStore for MemoryStore {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        Ok(objects.iter().map(|object| self.put(object)).collect())
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        Ok(self.0.lock().get(&name).cloned())
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        self.0.lock().remove(&name);
        Ok(())
    }
}
