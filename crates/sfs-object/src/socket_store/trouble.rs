//! Troubles of the store at the moment, by kind of request: a store that is full takes no object, and gives all.

use std::time::{Duration, Instant};

use crate::store_protocol::{Reply, Request};

/// Time after which an observer is told of another reason for a trouble that goes on.
const NEWS_AFTER: Duration = Duration::from_secs(60);
/// Time after which nobody tries a request again that was in trouble, if the store does others.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

/// Something that goes wrong at the moment.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// A line for the user.
    pub reason: String,
    /// `true` if the store answers, and refuses.
    pub is_refusal: bool,
    /// When it began.
    pub since: Instant,
    /// When it was met last.
    met: Instant,
    /// When an observer was told of it last.
    told: Instant,
}

/// Troubles of reading, storing and deleting.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    of_kind: [Option<Trouble>; 3],
    /// When a request of a kind had a useful reply last.
    useful: [Option<Instant>; 3],
}

/// A report to an observer.
pub(super) enum News {
    /// Something goes wrong.
    Trouble(Trouble),
    /// Nothing goes wrong any more.
    Over,
}

impl Troubles {
    /// Returns the trouble that has lasted longest.
    pub(super) fn oldest(&self) -> Option<&Trouble> {
        self.of_kind.iter().flatten().min_by_key(|trouble| trouble.since)
    }

    /// Returns since when requests of the kind of `request` are in trouble; `None` also if nobody has tried one for a while.
    pub(super) fn since(&self, request: &Request) -> Option<Instant> {
        let trouble = self.of_kind[kind_of(request)].as_ref();
        trouble
            .filter(|trouble| trouble.met.elapsed() < FORGOTTEN_AFTER)
            .map(|trouble| trouble.since)
    }

    /// Notes a reply, which may be one of several to requests that were sent at once.
    pub(super) fn note_reply(&mut self, request: &Request, reply: &Reply) {
        if !matches!(reply, Reply::Unknown(_) | Reply::Refused(_)) {
            self.useful[kind_of(request)] = Some(Instant::now());
        }
    }

    /// Returns when a request of the kind of `request` had a useful reply last.
    pub(super) fn last_useful(&self, request: &Request) -> Option<Instant> {
        self.useful[kind_of(request)]
    }

    /// Returns when uploads went on last. They also read; but a store that is read and takes no object is an outage.
    pub(super) fn last_upload(&self) -> Option<Instant> {
        let [read, stored, _] = self.useful;
        if self.of_kind[STORING].is_some() { stored } else { read.max(stored) }
    }

    /// Notes the replies to requests of the kind of `request`. Returns what an observer does not know.
    pub(super) fn note(&mut self, request: &Request, replies: &[Reply]) -> Option<News> {
        let now = Instant::now();
        let was_in_trouble = self.oldest().is_some();
        let kind = kind_of(request);
        let of_reply = |reply: &Reply| match reply {
            Reply::Unknown(reason) => Some((reason.clone(), false)),
            Reply::Refused(reason) => Some((reason.clone(), true)),
            _ => None,
        };
        let Some((reason, is_refusal)) = replies.iter().find_map(of_reply) else {
            self.of_kind[kind] = None;
            for trouble in &mut self.of_kind {
                trouble.take_if(|trouble| now - trouble.met >= FORGOTTEN_AFTER);
            }
            return (was_in_trouble && self.oldest().is_none()).then_some(News::Over);
        };
        let before = self.of_kind[kind].take();
        let is_other = |before: &Trouble| {
            before.is_refusal != is_refusal
                || before.reason != reason && now - before.told >= NEWS_AFTER
        };
        let is_news = before.as_ref().map_or(!was_in_trouble, is_other);
        let (since, told) = before.map_or((now, now), |before| (before.since, before.told));
        let told = if is_news { now } else { told };
        let trouble = Trouble { reason, is_refusal, since, met: now, told };
        self.of_kind[kind] = Some(trouble.clone());
        is_news.then_some(News::Trouble(trouble))
    }
}

const STORING: usize = 1;

fn kind_of(request: &Request) -> usize {
    match request {
        Request::Get(_) | Request::GetPart(_) => 0,
        Request::Put(_) | Request::Probe => STORING,
        Request::Delete(_) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Epoch, ObjectName};

    #[test]
    fn an_observer_is_told_of_the_begin_of_another_kind_and_of_the_end() {
        let name = ObjectName::Claim(Epoch(1));
        let (put, get) = (Request::Put(name), Request::Get(name));
        let unknown = [Reply::Done, Reply::Unknown("no network".into())];
        let mut troubles = Troubles::default();
        assert!(troubles.note(&get, &[Reply::Absent]).is_none());
        let begin = troubles.note(&put, &unknown);
        assert!(matches!(begin, Some(News::Trouble(trouble)) if !trouble.is_refusal));
        assert!(troubles.note(&put, &unknown).is_none(), "it is known");
        assert!(troubles.note(&get, &unknown).is_none(), "the same outage");
        let refused = [Reply::Refused("full".into())];
        let other = troubles.note(&put, &refused);
        assert!(matches!(other, Some(News::Trouble(trouble)) if trouble.is_refusal));
        // A store that is full is read, and stays full.
        assert!(troubles.note(&get, &[Reply::Absent]).is_none());
        assert!(troubles.note(&put, &refused).is_none());
        assert_eq!(troubles.oldest().map(|trouble| &trouble.reason[..]), Some("full"));
        assert!(matches!(troubles.note(&put, &[Reply::Done]), Some(News::Over)));
        assert!(troubles.oldest().is_none());
    }

    #[test]
    fn a_store_that_is_read_and_takes_no_object_uploads_nothing() {
        let name = ObjectName::Claim(Epoch(1));
        let (put, get) = (Request::Put(name), Request::Get(name));
        let mut troubles = Troubles::default();
        let mut meet = |request: &Request, reply: Reply| {
            troubles.note_reply(request, &reply);
            troubles.note(request, &[reply]);
            troubles.last_upload()
        };
        assert_eq!(meet(&put, Reply::Unknown("no network".into())), None);
        assert_eq!(meet(&get, Reply::Absent), None, "reading uploads nothing");
        let stored = meet(&put, Reply::Done);
        assert!(stored.is_some());
        assert!(meet(&get, Reply::Absent) > stored, "what is joined is read first");
        assert_eq!(meet(&put, Reply::Refused("full".into())), stored);
        assert_eq!(meet(&get, Reply::Absent), stored);
    }

    #[test]
    fn a_trouble_that_nobody_has_met_for_a_while_is_over() {
        let get = Request::Get(ObjectName::Claim(Epoch(1)));
        let mut troubles = Troubles::default();
        troubles.note(&get, &[Reply::Unknown("no network".into())]);
        assert!(troubles.since(&get).is_some());
        let hour = Duration::from_secs(3600);
        let old = troubles.of_kind[0].as_mut().expect("a trouble");
        (old.since, old.met) = (old.since - hour, old.met - hour);
        assert_eq!(troubles.since(&get), None);
    }
}
