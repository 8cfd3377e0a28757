//! A store that ends in the middle of a request, loses replies, and lets something else happen meanwhile.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sfs_object::{MemoryStore, Object, ObjectName, ObjectStore, Part, PutReply, Stopped};
use sfs_testkit::SeededRng;

/// Something that happens while a PUT is under way.
pub(crate) type Meanwhile = Box<dyn FnMut() + Send>;

struct Faults {
    /// Requests until the program dies.
    requests_left: u64,
    /// Whether the request in which it dies takes effect.
    last_takes_effect: bool,
    /// Whether replies may be lost.
    loses_replies: bool,
    rng: SeededRng,
    /// PUTs that take effect after the death.
    late: Vec<Object>,
}

/// The store as one life of a program sees it.
#[derive(Clone)]
pub(crate) struct MortalStore {
    objects: Arc<MemoryStore>,
    faults: Arc<Mutex<Faults>>,
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
}

impl MortalStore {
    pub(crate) fn new(objects: Arc<MemoryStore>, requests: u64, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let faults = Faults {
            requests_left: requests,
            last_takes_effect: rng.one_in(2),
            loses_replies: rng.one_in(2),
            rng,
            late: Vec::new(),
        };
        Self { objects, faults: Arc::new(Mutex::new(faults)), meanwhile: Arc::default() }
    }

    pub(crate) fn set_meanwhile(&self, meanwhile: Meanwhile) {
        *self.meanwhile.lock() = Some(meanwhile);
    }

    /// Lets the program die in one of the next requests.
    pub(crate) fn set_requests(&self, requests: u64) {
        self.faults.lock().requests_left = requests;
    }

    pub(crate) fn end(&self) {
        *self.meanwhile.lock() = None;
        self.faults.lock().requests_left = 0;
    }

    /// Lets late PUTs take effect.
    pub(crate) fn land(&self) {
        let late = std::mem::take(&mut self.faults.lock().late);
        late.iter().for_each(|object| {
            self.objects.put(object);
        });
    }

    /// Counts one request. Returns whether it takes effect, and whether the program lives.
    fn count(&self) -> (bool, bool) {
        let mut faults = self.faults.lock();
        match faults.requests_left {
            0 => (false, false),
            1 => {
                faults.requests_left = 0;
                (faults.last_takes_effect, false)
            }
            _ => {
                faults.requests_left -= 1;
                (true, true)
            }
        }
    }

    fn happen_meanwhile(&self) {
        let meanwhile = self.meanwhile.lock().take();
        if let Some(mut meanwhile) = meanwhile {
            meanwhile();
            *self.meanwhile.lock() = Some(meanwhile);
        }
    }
}

impl ObjectStore for MortalStore {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        self.happen_meanwhile();
        let mut replies = vec![PutReply::Unknown; objects.len()];
        // In any order.
        let mut rest = objects.iter().zip(&mut replies).collect::<Vec<_>>();
        while !rest.is_empty() {
            let at = self.faults.lock().rng.below(rest.len() as u64) as usize;
            let (object, outcome) = rest.swap_remove(at);
            let (takes_effect, lives) = self.count();
            let reply = takes_effect.then(|| self.objects.put(object));
            let mut faults = self.faults.lock();
            if !lives {
                if reply.is_none() && faults.rng.one_in(2) {
                    faults.late.push(object.clone());
                }
                return Err(Stopped);
            }
            let is_lost = faults.loses_replies && faults.rng.one_in(8);
            *outcome = reply.filter(|_| !is_lost).unwrap_or(PutReply::Unknown);
        }
        Ok(replies)
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        if self.count().1 { self.objects.get(name) } else { Err(Stopped) }
    }

    fn get_parts(
        &self,
        parts: &[Part],
        wait: Option<Duration>,
    ) -> Result<Vec<Option<Vec<u8>>>, Stopped> {
        if self.count().1 { self.objects.get_parts(parts, wait) } else { Err(Stopped) }
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        let (takes_effect, lives) = self.count();
        if takes_effect {
            self.objects.delete(name)?;
        }
        if lives { Ok(()) } else { Err(Stopped) }
    }
}
