//! The requests of an [`ObjectStore`], each repeated as its kind needs.

use std::time::{Duration, Instant};

use super::{AT_ONCE, PAUSE_MAX, SocketStore};
use crate::name::ObjectName;
use crate::store::{Found, Object, ObjectStore, Part, PutReply, Stopped};
use crate::store_protocol::{Reply, Request};

/// Bytes of PUTs that are under way at once for one caller, unless one has more.
const BYTES_AT_ONCE: usize = 64 << 20;

impl SocketStore {
    /// Sends a PUT for each object, and repeats those that the store refuses.
    pub(super) fn put_some(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        let of = |object: &'_ Object| Request::Put(object.name);
        let requests = objects.iter().map(|object| (of(object), &object.bytes[..]));
        // Patience with a store that refuses is the same for all requests; what is unknown is the caller's.
        let is_useful = |reply: &Reply| !matches!(reply, Reply::Refused(_));
        let requests = requests.collect::<Vec<_>>();
        let replies = self.repeat(&requests, is_useful, None)?;
        let replies = replies.iter().map(outcome).collect::<Vec<_>>();
        self.note_lost(replies.contains(&PutReply::Unknown))?;
        Ok(replies)
    }

    /// Waits before PUTs go on, if nothing is known of some.
    pub(super) fn note_lost(&self, is_lost: bool) -> Result<(), Stopped> {
        if is_lost {
            let (attempts, since) = {
                let mut status = self.status.lock();
                let (count, since) = status.lost_puts.unwrap_or((0, Instant::now()));
                status.lost_puts = Some((count.saturating_add(1), since));
                (count, since)
            };
            self.check_patience(since, false)?;
            self.pause(attempts, PAUSE_MAX)?;
        } else {
            self.status.lock().lost_puts = None;
        }
        Ok(())
    }
}

/// Returns what a reply to a PUT says, which is not a refusal.
pub(super) fn outcome(reply: &Reply) -> PutReply {
    match reply {
        Reply::Done => PutReply::Stored,
        Reply::Taken => PutReply::Taken,
        _ => PutReply::Unknown,
    }
}

impl ObjectStore for SocketStore {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        let mut replies = Vec::with_capacity(objects.len());
        let mut rest = objects;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |object: &&Object| {
                bytes += object.bytes.len();
                bytes <= BYTES_AT_ONCE
            };
            let count = rest.iter().take(AT_ONCE).take_while(fits).count().max(1);
            let (some, after) = rest.split_at(count);
            replies.extend(self.put_some(some)?);
            rest = after;
        }
        Ok(replies)
    }

    fn put_each(
        &self,
        objects: &mut dyn Iterator<Item = Object>,
        bytes_at_once: usize,
        stored: &mut dyn FnMut(ObjectName),
    ) -> Result<Vec<(Object, PutReply)>, Stopped> {
        self.put_stream(objects, bytes_at_once, stored)
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        Ok(self.get_all(&[name])?.pop().flatten())
    }

    fn get_all(&self, names: &[ObjectName]) -> Result<Found, Stopped> {
        self.read(names.iter().map(|name| Request::Get(*name)), None)
    }

    fn get_parts(&self, parts: &[Part], wait: Option<Duration>) -> Result<Found, Stopped> {
        self.read(parts.iter().map(|part| Request::GetPart(*part)), wait)
    }

    fn get_parts_once(&self, parts: &[Part]) -> Result<Found, Stopped> {
        let requests = parts.iter().map(|part| (Request::GetPart(*part), &[][..]));
        let requests = requests.collect::<Vec<_>>();
        let limit = requests.first().and_then(|(first, _)| self.tighter(None, first));
        let replies = self.attempt(&requests, limit)?;
        if replies.iter().all(is_found) { Ok(found(replies)) } else { Err(Stopped) }
    }

    fn give_back(&self, bytes: Vec<u8>) {
        self.spares.give_back(bytes);
    }

    fn spare(&self, len: usize) -> Vec<u8> {
        let mut memory = self.spares.take(len);
        memory.clear();
        memory
    }

    fn free_spares(&self) {
        self.spares.free();
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        if self.delete_all(&[name])?.is_empty() { Ok(()) } else { Err(Stopped) }
    }

    /// Tries nothing again: nobody waits for it. It ends with requests that were sent at once and all of which have failed.
    fn delete_all(&self, names: &[ObjectName]) -> Result<Vec<ObjectName>, Stopped> {
        let (mut left, mut rest) = (Vec::new(), names);
        while !rest.is_empty() {
            let (some, after) = rest.split_at(rest.len().min(AT_ONCE));
            let requests = some.iter().map(|name| (Request::Delete(*name), &[][..]));
            let replies = self.attempt(&requests.collect::<Vec<_>>(), None)?;
            let kept = some.iter().zip(replies).filter(|(_, reply)| *reply != Reply::Done);
            let before = left.len();
            left.extend(kept.map(|(name, _)| *name));
            rest = after;
            if left.len() - before == some.len() {
                left.extend(std::mem::take(&mut rest));
            }
        }
        Ok(left)
    }

    fn last_upload(&self) -> Option<Instant> {
        self.status.lock().troubles.last_upload()
    }
}

impl SocketStore {
    fn read(
        &self,
        requests: impl Iterator<Item = Request>,
        wait: Option<Duration>,
    ) -> Result<Found, Stopped> {
        let requests = requests.map(|request| (request, &[][..])).collect::<Vec<_>>();
        Ok(found(self.repeat(&requests, is_found, wait)?))
    }
}

/// Returns whether a reply tells what a name has.
fn is_found(reply: &Reply) -> bool {
    matches!(reply, Reply::Found(_) | Reply::Absent)
}

/// Returns what such replies tell.
fn found(replies: Vec<Reply>) -> Found {
    let replies = replies.into_iter();
    replies.map(|reply| if let Reply::Found(bytes) = reply { Some(bytes) } else { None }).collect()
}
