//! An object interface to a device: the device allocates pages, and the host names objects
//! (Rajimwale et al., section 3.7).
//!
//! Deleting an object frees its pages for the cleaner at once, without a trim by the host. Read-only objects
//! are written to a stream of their own. Requests for priority objects defer cleaning.

use std::collections::{BTreeMap, BTreeSet};

use crate::request::{Completion, HostRequest, RequestKind};
use crate::ssd::Ssd;

/// Stream of the objects that can change.
const CHANGING: u8 = 0;
/// Stream of the read-only objects.
const READ_ONLY: u8 = 1;

/// Identifier of an object, assigned by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(u64);

/// Attributes of an object, set by the host at its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectAttributes {
    /// `true` if each page of the object is written only once, and needs no cleaning until the deletion.
    pub read_only: bool,
    /// `true` if requests for the object take precedence over cleaning.
    pub priority: bool,
}

/// Reason why a request for an object was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The object does not exist.
    #[error("no such object")]
    NotFound,
    /// The object is read-only, and a page of the request was written before.
    #[error("the object is read-only")]
    ReadOnly,
    /// The device has too few free pages.
    #[error("no free pages")]
    NoSpace,
}

struct Object {
    attributes: ObjectAttributes,
    /// Page of the device for each written page of the object.
    pages: BTreeMap<u64, u32>,
}

/// Store of objects on a device. The separation of read-only objects needs a translation layer with
/// two streams.
pub struct ObjectStore {
    ssd: Ssd,
    objects: BTreeMap<ObjectId, Object>,
    free_pages: BTreeSet<u32>,
    created_count: u64,
}

impl ObjectStore {
    /// Makes an empty store on an erased device.
    pub fn new(ssd: Ssd) -> ObjectStore {
        let pages = ssd.geometry().pages();
        ObjectStore {
            ssd,
            objects: BTreeMap::new(),
            free_pages: (0..pages).collect(),
            created_count: 0,
        }
    }

    /// Returns the underlying device, for inspection.
    pub fn ssd(&self) -> &Ssd {
        &self.ssd
    }

    /// Creates an empty object.
    pub fn create(&mut self, attributes: ObjectAttributes) -> ObjectId {
        let id = ObjectId(self.created_count);
        self.created_count += 1;
        self.objects.insert(id, Object { attributes, pages: BTreeMap::new() });
        id
    }

    /// Writes `len` bytes of an object from `offset` on.
    ///
    /// # Errors
    ///
    /// [`ObjectError::NotFound`], [`ObjectError::NoSpace`], or [`ObjectError::ReadOnly`] if a page
    /// of a read-only object was written before. A failed call writes nothing.
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
            let take = || self.free_pages.pop_first().expect("enough free pages were counted");
            object.pages.entry(number).or_insert_with(take);
        }
        self.serve(id, RequestKind::Write, offset, len, at_ns)
    }

    /// Reads `len` bytes of an object from `offset` on; pages that were never written cost no flash read.
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

    /// Deletes an object and trims its pages.
    ///
    /// # Errors
    ///
    /// [`ObjectError::NotFound`].
    pub fn delete(&mut self, id: ObjectId, at_ns: u64) -> Result<Completion, ObjectError> {
        let page_size = self.ssd.geometry().page_size();
        let last = self.objects.get(&id).ok_or(ObjectError::NotFound)?.pages.keys().next_back();
        let len = last.map_or(0, |last| (last + 1) * page_size);
        let completion = self.serve(id, RequestKind::Trim, 0, len, at_ns)?;
        let object = self.objects.remove(&id).expect("the object was found before");
        self.free_pages.extend(object.pages.into_values());
        Ok(completion)
    }

    fn page_numbers(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        let page_size = self.ssd.geometry().page_size();
        offset / page_size..(offset + len).div_ceil(page_size)
    }

    /// Splits a request for an object into requests for runs of adjacent pages, which reach the device at
    /// the same time.
    fn serve(
        &mut self,
        id: ObjectId,
        kind: RequestKind,
        offset: u64,
        len: u64,
        at_ns: u64,
    ) -> Result<Completion, ObjectError> {
        let object = self.objects.get(&id).ok_or(ObjectError::NotFound)?;
        let ObjectAttributes { read_only, priority } = object.attributes;
        let page_size = self.ssd.geometry().page_size();
        let mut runs: Vec<HostRequest> = Vec::new();
        for (&number, &page) in object.pages.range(self.page_numbers(offset, len)) {
            let first = offset.max(number * page_size);
            let end = (offset + len).min((number + 1) * page_size);
            let at = u64::from(page) * page_size + first % page_size;
            match runs.last_mut() {
                Some(run) if run.end() == at => run.len += end - first,
                _ => runs.push(HostRequest::new(kind, at, end - first)),
            }
        }
        let stream = if read_only { READ_ONLY } else { CHANGING };
        let mut ended_ns = at_ns;
        for run in runs {
            let request = HostRequest { arrival_ns: at_ns, stream, priority, ..run };
            ended_ns = ended_ns.max(self.ssd.serve(&request, at_ns).ended_ns);
        }
        self.ssd.clean(priority, at_ns);
        Ok(Completion { arrived_ns: at_ns, begun_ns: at_ns, ended_ns })
    }
}

#[cfg(test)]
mod tests;
