//! A store whose objects are encrypted before they leave the process.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Random;
use super::file_key::FileKey;
use super::volume_key::{Prefix, Salt, VolumeKey, stored};
use crate::name::{Epoch, ObjectName};
use crate::store::{Found, Object, ObjectStore, Part, PutReply, Stopped};

/// Why a volume cannot be used with a key, or without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncryptionError {
    /// There is no key.
    #[error("the volume is encrypted: give -o key_file=FILE")]
    KeyMissing,
    /// There is a key, and the volume has none.
    #[error("the volume is not encrypted, but a key was given: mount it without key_file=")]
    NotEncrypted,
    /// The key is of another volume.
    #[error("wrong key: the volume is encrypted with another one")]
    WrongKey,
    /// The volume is encrypted in a way that this program does not know.
    #[error("the volume is encrypted by a later version of this program")]
    Later,
    /// The caller has given up.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// The store of a volume: encrypted, or as it is.
///
/// The bytes of an object stay in memory until it is known to be stored, and are sent again as they are, so that a name never gets two
/// ciphertexts of one content. An object that cannot be decrypted has no bytes, which no object decodes from.
pub struct EncryptedStore<S> {
    store: S,
    key: Option<VolumeKey>,
    random: Box<Random>,
    /// Bytes of objects whose PUT has not been confirmed.
    unconfirmed: Mutex<HashMap<ObjectName, Vec<u8>>>,
}

impl<S: ObjectStore> EncryptedStore<S> {
    /// Returns the store of a volume that is not encrypted, whatever it holds.
    pub fn plain(store: S) -> Self {
        let random = Box::new(super::system_random);
        Self { store, key: None, random, unconfirmed: Mutex::default() }
    }

    /// Returns the store of the volume in `store`, which is read with `key`; without a volume, the store of one that is to be made with
    /// it. The first claim decides. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`EncryptionError`] if the volume needs a key, another one, or none.
    pub fn open(
        store: S,
        key: Option<&FileKey>,
        random: Box<Random>,
    ) -> Result<Self, EncryptionError> {
        let name = ObjectName::Claim(Epoch(1));
        let claim = store.get(name)?;
        let key = match (claim.as_deref().map(Prefix::of), key) {
            (None | Some(Prefix::Plain), None) => None,
            (Some(Prefix::Plain), Some(_)) => return Err(EncryptionError::NotEncrypted),
            (Some(Prefix::Unknown), _) => return Err(EncryptionError::Later),
            (Some(Prefix::Encrypted(_)), None) => return Err(EncryptionError::KeyMissing),
            (None, Some(key)) => {
                let mut salt = Salt::default();
                random(&mut salt);
                Some(VolumeKey::new(key, salt))
            }
            (Some(Prefix::Encrypted(salt)), Some(key)) => {
                let key = VolumeKey::new(key, salt);
                let content = claim.and_then(|bytes| key.decrypt(name, bytes));
                Some(content.map(|_| key).ok_or(EncryptionError::WrongKey)?)
            }
        };
        Ok(Self { store, key, random, unconfirmed: Mutex::default() })
    }

    /// Returns whether objects are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.key.is_some()
    }

    /// Returns the object as it is stored.
    fn encrypted(&self, key: &VolumeKey, object: &Object) -> Object {
        let Object { name, bytes: content } = object;
        let before = self.unconfirmed.lock().remove(name);
        let is_same = |bytes: &Vec<u8>| key.decrypt(*name, bytes.clone()).as_ref() == Some(content);
        let again = before.filter(is_same);
        let bytes = again.unwrap_or_else(|| key.encrypt(*name, content, &*self.random));
        Object { name: *name, bytes }
    }

    /// Returns parts of the content of objects, by a function that returns parts of objects as they are stored.
    fn parts(
        &self,
        parts: &[Part],
        get: impl FnOnce(&[Part]) -> Result<Found, Stopped>,
    ) -> Result<Found, Stopped> {
        let Some(key) = &self.key else { return get(parts) };
        let wanted = parts.iter().map(|part| stored(*part)).collect::<Vec<_>>();
        let found = parts.iter().zip(get(&wanted)?);
        let content = |part: Part, bytes| key.decrypt_part(part, bytes).unwrap_or_default();
        Ok(found.map(|(part, bytes)| bytes.map(|bytes| content(*part, bytes))).collect())
    }

    /// Returns the content of an object that the store has.
    fn content(&self, key: &VolumeKey, name: ObjectName, bytes: Vec<u8>) -> Vec<u8> {
        self.unconfirmed.lock().remove(&name);
        key.decrypt(name, bytes).unwrap_or_default()
    }
}

impl<S: ObjectStore> ObjectStore for EncryptedStore<S> {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        let Some(key) = &self.key else { return self.store.put_all(objects) };
        let encrypted = objects.iter().map(|object| self.encrypted(key, object));
        let encrypted = encrypted.collect::<Vec<_>>();
        let replies = self.store.put_all(&encrypted)?;
        let unconfirmed = encrypted.into_iter().zip(&replies);
        let unconfirmed = unconfirmed.filter(|(_, reply)| **reply != PutReply::Stored);
        let unconfirmed = unconfirmed.map(|(object, _)| (object.name, object.bytes));
        self.unconfirmed.lock().extend(unconfirmed);
        Ok(replies)
    }

    fn put_each(
        &self,
        objects: &mut dyn Iterator<Item = Object>,
        bytes_at_once: usize,
        stored: &mut dyn FnMut(ObjectName),
    ) -> Result<Vec<(Object, PutReply)>, Stopped> {
        let Some(key) = &self.key else {
            return self.store.put_each(objects, bytes_at_once, stored);
        };
        let mut encrypted = objects.map(|object| self.encrypted(key, &object));
        let open = self.store.put_each(&mut encrypted, bytes_at_once, stored)?;
        let open = open.into_iter().map(|(Object { name, bytes }, reply)| {
            self.unconfirmed.lock().insert(name, bytes.clone());
            let content = key.decrypt(name, bytes).expect("this store has encrypted it");
            (Object { name, bytes: content }, reply)
        });
        Ok(open.collect())
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        let found = self.store.get(name)?;
        let Some(key) = &self.key else { return Ok(found) };
        Ok(found.map(|bytes| self.content(key, name, bytes)))
    }

    fn get_all(&self, names: &[ObjectName]) -> Result<Found, Stopped> {
        let found = self.store.get_all(names)?;
        let Some(key) = &self.key else { return Ok(found) };
        let found = names.iter().zip(found);
        Ok(found.map(|(name, bytes)| bytes.map(|bytes| self.content(key, *name, bytes))).collect())
    }

    fn get_parts(&self, parts: &[Part], wait: Option<Duration>) -> Result<Found, Stopped> {
        self.parts(parts, |wanted| self.store.get_parts(wanted, wait))
    }

    fn get_parts_once(&self, parts: &[Part]) -> Result<Found, Stopped> {
        self.parts(parts, |wanted| self.store.get_parts_once(wanted))
    }

    fn give_back(&self, bytes: Vec<u8>) {
        self.store.give_back(bytes);
    }

    fn spare(&self, len: usize) -> Vec<u8> {
        self.store.spare(len)
    }

    fn free_spares(&self) {
        self.store.free_spares();
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        self.store.delete(name)
    }

    fn delete_all(&self, names: &[ObjectName]) -> Result<Vec<ObjectName>, Stopped> {
        self.store.delete_all(names)
    }

    fn last_upload(&self) -> Option<Instant> {
        self.store.last_upload()
    }
}

#[cfg(test)]
mod tests;
