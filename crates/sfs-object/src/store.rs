//! An object store, with the outcomes that requests over a network have.

use std::time::{Duration, Instant};

use crate::name::ObjectName;

/// An object to be stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Its name below the prefix of the volume.
    pub name: ObjectName,
    /// All of its bytes.
    pub bytes: Vec<u8>,
}

/// Some bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Name of the object.
    pub name: ObjectName,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Part {
    /// Returns this part of `bytes`, as far as it exists.
    pub fn of(&self, bytes: &[u8]) -> Vec<u8> {
        let clamp = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        bytes[clamp(self.offset)..clamp(self.offset.saturating_add(self.len))].to_vec()
    }
}

/// Bytes of several objects, each `None` if the store says that there is no object of this name.
pub type Found = Vec<Option<Vec<u8>>>;

/// Outcome of one PUT with `If-None-Match: *`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PutReply {
    /// The store has taken the object.
    Stored,
    /// The name had an object already, perhaps this very one (412, and nothing else: a 409 is [`PutReply::Unknown`]).
    Taken,
    /// No reply, or one that tells nothing (time-out, 409, 5xx): the object may be stored now, later, or never.
    Unknown,
}

/// The caller of the protocol has given up (an unmount, or `outage=eio`); nothing is known of requests under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped waiting for the object store")]
pub struct Stopped;

/// An object store in which the first PUT of a name decides its content.
///
/// Waiting between attempts, and giving up, are the implementation's: nothing else ends the attempts of a request that a store refuses for
/// good (403, 507).
pub trait ObjectStore {
    /// Sends one PUT for each object, all at once and in any order, each on the condition that its name is free. Returns the
    /// replies in the order of the objects.
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped>;

    /// Stores objects as they come, each as [`ObjectStore::put_all`] does, while fewer than `bytes_at_once` are under way. Calls `stored` as soon as
    /// one is stored, after which `objects` may have more. Returns the others, with their replies. The rest of `objects` is perhaps not taken then,
    /// and at other times: the caller calls until there is none.
    fn put_each(
        &self,
        objects: &mut dyn Iterator<Item = Object>,
        bytes_at_once: usize,
        stored: &mut dyn FnMut(ObjectName),
    ) -> Result<Vec<(Object, PutReply)>, Stopped> {
        loop {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while bytes < bytes_at_once.max(1)
                && let Some(object) = objects.next()
            {
                bytes += object.bytes.len().max(1);
                batch.push(object);
            }
            if batch.is_empty() {
                return Ok(Vec::new());
            }
            let replies = self.put_all(&batch)?;
            let mut open = Vec::new();
            for (object, reply) in batch.into_iter().zip(replies) {
                match reply {
                    PutReply::Stored => stored(object.name),
                    reply => open.push((object, reply)),
                }
            }
            if !open.is_empty() {
                return Ok(open);
            }
        }
    }

    /// Returns the bytes of an object, or `None` if the store says that there is no object of this name (404, and nothing else).
    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped>;

    /// Returns the bytes of several objects, which may be read at once.
    fn get_all(&self, names: &[ObjectName]) -> Result<Found, Stopped> {
        names.iter().map(|name| self.get(*name)).collect()
    }

    /// Returns a part of each of several objects, which may be read at once. A part beyond the end of its object is shorter. Gives up when the
    /// store has told nothing useful for `wait`; `None` is for ever, and so it always is here.
    fn get_parts(&self, parts: &[Part], _wait: Option<Duration>) -> Result<Found, Stopped> {
        let names = parts.iter().map(|part| part.name).collect::<Vec<_>>();
        let whole = self.get_all(&names)?.into_iter().zip(parts);
        Ok(whole.map(|(bytes, part)| bytes.map(|bytes| part.of(&bytes))).collect())
    }

    /// Returns parts as [`ObjectStore::get_parts`] does, but asks once, and gives up what the store refuses, or tells nothing of.
    fn get_parts_once(&self, parts: &[Part]) -> Result<Found, Stopped> {
        self.get_parts(parts, None)
    }

    /// Takes back the memory of bytes that were read, for others.
    fn give_back(&self, _bytes: Vec<u8>) {}

    /// Returns empty memory for about `len` bytes of an object, perhaps some that was given back.
    fn spare(&self, _len: usize) -> Vec<u8> {
        Vec::new()
    }

    /// Frees memory that was given back.
    fn free_spares(&self) {}

    /// Deletes an object, if it exists. The caller has waited for the grace time: no PUT of this name is under way.
    fn delete(&self, name: ObjectName) -> Result<(), Stopped>;

    /// Deletes several objects as [`ObjectStore::delete`] does, perhaps at once, and returns those that the store may still have.
    fn delete_all(&self, names: &[ObjectName]) -> Result<Vec<ObjectName>, Stopped> {
        names.iter().try_for_each(|name| self.delete(*name))?;
        Ok(Vec::new())
    }

    /// Returns when uploads have last gone on, if that is known: when an object was stored, or read for that.
    fn last_upload(&self) -> Option<Instant> {
        None
    }
}

impl<S: ObjectStore + ?Sized, P: std::ops::Deref<Target = S>> ObjectStore for P {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        (**self).put_all(objects)
    }

    fn put_each(
        &self,
        objects: &mut dyn Iterator<Item = Object>,
        bytes_at_once: usize,
        stored: &mut dyn FnMut(ObjectName),
    ) -> Result<Vec<(Object, PutReply)>, Stopped> {
        (**self).put_each(objects, bytes_at_once, stored)
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        (**self).get(name)
    }

    fn get_all(&self, names: &[ObjectName]) -> Result<Found, Stopped> {
        (**self).get_all(names)
    }

    fn get_parts(&self, parts: &[Part], wait: Option<Duration>) -> Result<Found, Stopped> {
        (**self).get_parts(parts, wait)
    }

    fn get_parts_once(&self, parts: &[Part]) -> Result<Found, Stopped> {
        (**self).get_parts_once(parts)
    }

    fn give_back(&self, bytes: Vec<u8>) {
        (**self).give_back(bytes);
    }

    fn spare(&self, len: usize) -> Vec<u8> {
        (**self).spare(len)
    }

    fn free_spares(&self) {
        (**self).free_spares();
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        (**self).delete(name)
    }

    fn delete_all(&self, names: &[ObjectName]) -> Result<Vec<ObjectName>, Stopped> {
        (**self).delete_all(names)
    }

    fn last_upload(&self) -> Option<Instant> {
        (**self).last_upload()
    }
}
