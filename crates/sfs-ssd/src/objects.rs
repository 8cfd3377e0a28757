//! An object interface: the device manages blocks, the host names objects.
//!
//! Owns: which pages an object has, and what its attributes mean (Rajimwale et al., section 3.7).
//! Promises: the pages of a deleted object are free for the cleaner at once, without a trim; those
//! of read-only objects lie apart from others; priority objects put off cleaning.
//! Never: holds bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{Completion, Request, RequestKind, Ssd};

/// Stream of objects that change, and of those that do not.
const CHANGING: u8 = 0;
const READ_ONLY: u8 = 1;

/// Name of an object: the device gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(u64);

/// What the host says of an object when it creates it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Nothing of it is written twice: it belongs where nothing is cleaned.
    pub read_only: bool,
    /// Its requests come before cleaning.
    pub priority: bool,
}

/// Why a request for an object was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectError {
    /// There is no such object.
    NotFound,
    /// It is read-only, and this was written before.
    ReadOnly,
    /// There are not enough free pages.
    NoSpace,
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "no such object",
            Self::ReadOnly => "the object is read-only",
            Self::NoSpace => "no free pages",
        })
    }
}

impl std::error::Error for ObjectError {}

struct Object {
    attributes: Attributes,
    /// Page of the device by page of the object.
    pages: BTreeMap<u64, u32>,
}

/// A device of objects. Its translation layer should keep two streams apart.
pub struct ObjectStore {
    ssd: Ssd,
    objects: BTreeMap<ObjectId, Object>,
    free_pages: BTreeSet<u32>,
    created_count: u64,
}

impl ObjectStore {
    /// A device without objects, on an erased one.
    pub fn new(ssd: Ssd) -> ObjectStore {
        let pages = ssd.geometry().pages();
        ObjectStore {
            ssd,
            objects: BTreeMap::new(),
            free_pages: (0..pages).collect(),
            created_count: 0,
        }
    }

    /// The device below, to look at.
    pub fn ssd(&self) -> &Ssd {
        &self.ssd
    }

    /// A new object without bytes.
    pub fn create(&mut self, attributes: Attributes) -> ObjectId {
        let id = ObjectId(self.created_count);
        self.created_count += 1;
        self.objects.insert(id, Object { attributes, pages: BTreeMap::new() });
        id
    }

    /// Writes `len` bytes of an object from `offset` on.
    ///
    /// # Errors
    ///
    /// [`ObjectError::NotFound`]; [`ObjectError::ReadOnly`] if it is and any of the pages was
    /// written before; [`ObjectError::NoSpace`]. Nothing is written then.
    pub fn write(
        &mut self,
        id: ObjectId,
        offset: u64,
        len: u64,
        at_ns: u64,
    ) -> Result<Completion, ObjectError> {
        let wanted = self.page_numbers(offset, len);
        let object = self.objects.get_mut(&id).ok_or(ObjectError::NotFound)?;
        let written = object.pages.range(wanted.clone()).count();
        if object.attributes.read_only && written > 0 {
            return Err(ObjectError::ReadOnly);
        }
        if (wanted.end - wanted.start) as usize - written > self.free_pages.len() {
            return Err(ObjectError::NoSpace);
        }
        for number in wanted {
            let take = || self.free_pages.pop_first().expect("they were counted");
            object.pages.entry(number).or_insert_with(take);
        }
        self.serve(id, RequestKind::Write, offset, len, at_ns)
    }

    /// Reads bytes; those that were never written take no flash.
    ///
    /// # Errors
    ///
    /// [`ObjectError::NotFound`].
    pub fn read(
        &mut self,
        id: ObjectId,
        offset: u64,
        len: u64,
        at_ns: u64,
    ) -> Result<Completion, ObjectError> {
        self.serve(id, RequestKind::Read, offset, len, at_ns)
    }

    /// Deletes an object.
    ///
    /// # Errors
    ///
    /// [`ObjectError::NotFound`].
    pub fn delete(&mut self, id: ObjectId, at_ns: u64) -> Result<Completion, ObjectError> {
        let page_size = self.ssd.geometry().page_size();
        let last = self.objects.get(&id).ok_or(ObjectError::NotFound)?.pages.keys().next_back();
        let len = last.map_or(0, |last| (last + 1) * page_size);
        let completion = self.serve(id, RequestKind::Trim, 0, len, at_ns)?;
        let object = self.objects.remove(&id).expect("it was there");
        self.free_pages.extend(object.pages.into_values());
        Ok(completion)
    }

    fn page_numbers(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        let page_size = self.ssd.geometry().page_size();
        offset / page_size..(offset + len).div_ceil(page_size)
    }

    /// Turns a request for bytes of an object into requests for runs of pages, which the device
    /// gets at the same time.
    fn serve(
        &mut self,
        id: ObjectId,
        kind: RequestKind,
        offset: u64,
        len: u64,
        at_ns: u64,
    ) -> Result<Completion, ObjectError> {
        let object = self.objects.get(&id).ok_or(ObjectError::NotFound)?;
        let Attributes { read_only, priority } = object.attributes;
        let page_size = self.ssd.geometry().page_size();
        let mut runs: Vec<Request> = Vec::new();
        for (&number, &page) in object.pages.range(self.page_numbers(offset, len)) {
            let first = offset.max(number * page_size);
            let end = (offset + len).min((number + 1) * page_size);
            let at = u64::from(page) * page_size + first % page_size;
            match runs.last_mut() {
                Some(run) if run.end() == at => run.len += end - first,
                _ => runs.push(Request::new(kind, at, end - first)),
            }
        }
        let stream = if read_only { READ_ONLY } else { CHANGING };
        let mut ended_ns = at_ns;
        for run in runs {
            let request = Request { arrival_ns: at_ns, stream, priority, ..run };
            ended_ns = ended_ns.max(self.ssd.serve(&request, at_ns).ended_ns);
        }
        self.ssd.clean(priority, at_ns);
        Ok(Completion { arrived_ns: at_ns, begun_ns: at_ns, ended_ns })
    }
}

#[cfg(test)]
mod tests;
