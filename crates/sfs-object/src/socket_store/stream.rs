//! PUTs one after the other, many under way: the next object is made while the store takes those before.

use std::collections::VecDeque;
use std::time::Instant;

use super::connection::Connection;
use super::requests::outcome;
use super::{AT_ONCE, PAUSE_MAX, SocketStore};
use crate::name::ObjectName;
use crate::store::{Object, PutReply, Stopped};
use crate::store_protocol::{Reply, Request};

/// A PUT that was sent.
struct Flying {
    number: u64,
    object: Object,
    sent: Instant,
}

impl SocketStore {
    /// Does [`ObjectStore::put_each`](crate::ObjectStore::put_each).
    pub(super) fn put_stream(
        &self,
        objects: &mut dyn Iterator<Item = Object>,
        bytes_at_once: usize,
        stored: &mut dyn FnMut(ObjectName),
    ) -> Result<Vec<(Object, PutReply)>, Stopped> {
        let connection = match self.connected(None) {
            Ok(connection) => connection,
            Err(reply) => return self.put_unsent(objects.next(), reply),
        };
        let open = self.send_each(&connection, objects, bytes_at_once, stored)?;
        // What is refused is repeated as the patience says, and what is unknown by the caller.
        let is_lost = open.iter().any(|(_, reply)| matches!(reply, Reply::Unknown(_)));
        self.note_lost(is_lost)?;
        let settled = open.into_iter().map(|(object, reply)| {
            let reply = match reply {
                Reply::Refused(_) => self.put_some(std::slice::from_ref(&object))?.remove(0),
                reply => outcome(&reply),
            };
            Ok((object, reply))
        });
        settled.collect()
    }

    /// Notes the trouble of an object that could not be sent, after which it is unknown, or refused and tried again.
    fn put_unsent(
        &self,
        object: Option<Object>,
        reply: Reply,
    ) -> Result<Vec<(Object, PutReply)>, Stopped> {
        let Some(object) = object else { return Ok(Vec::new()) };
        let is_refused = matches!(reply, Reply::Refused(_));
        self.note(&Request::Put(object.name), &[reply])?;
        if !is_refused {
            self.note_lost(true)?;
            return Ok(vec![(object, PutReply::Unknown)]);
        }
        // The program is not started again at once.
        self.check_patience(Instant::now(), true)?;
        self.pause(0, PAUSE_MAX)?;
        let reply = self.put_some(std::slice::from_ref(&object))?.remove(0);
        Ok(vec![(object, reply)])
    }

    /// Sends PUTs until one is not answered as it should be. Returns those, once all are answered.
    fn send_each(
        &self,
        connection: &Connection,
        objects: &mut dyn Iterator<Item = Object>,
        bytes_at_once: usize,
        stored: &mut dyn FnMut(ObjectName),
    ) -> Result<Vec<(Object, Reply)>, Stopped> {
        let (mut flying, mut bytes) = (VecDeque::new(), 0);
        let mut open = Vec::new();
        loop {
            while open.is_empty()
                && (flying.is_empty() || flying.len() < AT_ONCE && bytes < bytes_at_once)
                && let Some(object) = objects.next()
            {
                bytes += object.bytes.len();
                let number = connection.send(&Request::Put(object.name), &object.bytes);
                flying.push_back(Flying { number, object, sent: Instant::now() });
            }
            let Some(Flying { number, object, sent }) = flying.pop_front() else {
                return Ok(open);
            };
            let request = Request::Put(object.name);
            let reply = connection.wait(number, &|| self.is_over(sent, None, &request));
            bytes -= object.bytes.len();
            {
                let mut status = self.status.lock();
                status.troubles.note_reply(&request, &reply);
                status.counts.add(&(request, &object.bytes[..]), &reply);
            }
            // Those that are stored while others are not do not end the trouble.
            if open.is_empty() || reply != Reply::Done {
                self.note(&request, std::slice::from_ref(&reply))?;
            }
            match reply {
                Reply::Done => {
                    self.spares.give_back(object.bytes);
                    stored(object.name);
                }
                reply => open.push((object, reply)),
            }
        }
    }
}
