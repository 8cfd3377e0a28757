//! Runs programs against one object store in every order of their requests.
//!
//! A program is deterministic code. To make one step of it, the explorer runs it again from its begin with the replies that it has got so
//! far, until it makes a request that has no reply yet. A PUT takes effect at once, at once but without its reply, or later, or
//! never; a program may crash. States that were seen are not explored again.

pub(crate) mod scopes;

use std::cell::{Cell, RefCell};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use sfs_object::{Object, ObjectError, ObjectName, ObjectStore, PutReply, Stopped};

/// Number of requests after which a program is said to loop.
const REPLIES_MAX: usize = 400;

/// Results and promises of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// Entries that were acknowledged to the users of this writer.
    pub(crate) acknowledged: Vec<u8>,
    /// Entries of the state that a writer has published first.
    pub(crate) begun_with: Option<Vec<u8>>,
    /// Entries that a reader has read; none if it was told that there is no volume.
    pub(crate) read: Option<Vec<u8>>,
}

/// A program: requests go to the store, results to the notes.
pub(crate) type Program = fn(&Script, &mut Notes) -> Result<(), ObjectError>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Request {
    Put(Vec<Object>),
    Get(ObjectName),
    Delete(ObjectName),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Reply {
    Put(Vec<PutReply>),
    Get(Option<Rc<[u8]>>),
    Deleted,
}

/// The store as a program sees it: replies of the past, and then a request that is not answered yet.
pub(crate) struct Script {
    replies: Rc<Vec<Reply>>,
    next: Cell<usize>,
    asked: RefCell<Option<Request>>,
}

impl Script {
    fn ask(&self, request: Request) -> Result<Reply, Stopped> {
        let reply = self.replies.get(self.next.get()).cloned();
        self.next.set(self.next.get() + 1);
        if reply.is_none() {
            let before = self.asked.replace(Some(request));
            assert_eq!(before, None, "a program goes on after it was stopped");
        }
        reply.ok_or(Stopped)
    }
}

impl ObjectStore for Script {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        match self.ask(Request::Put(objects.to_vec()))? {
            Reply::Put(replies) => Ok(replies),
            reply => panic!("a PUT is answered by {reply:?}"),
        }
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        match self.ask(Request::Get(name))? {
            Reply::Get(bytes) => Ok(bytes.map(|bytes| bytes.to_vec())),
            reply => panic!("a GET is answered by {reply:?}"),
        }
    }

    /// A store answers requests that are under way at once in any order. The last name first is the hardest: a name may be missing, and
    /// one behind it be there already.
    fn get_all(&self, names: &[ObjectName]) -> Result<Vec<Option<Vec<u8>>>, Stopped> {
        let mut read =
            names.iter().rev().map(|name| self.get(*name)).collect::<Result<Vec<_>, _>>()?;
        read.reverse();
        Ok(read)
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        self.ask(Request::Delete(name)).map(|_| ())
    }
}

/// Objects of a store, and a store without faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Objects(BTreeMap<ObjectName, Rc<[u8]>>);

impl Objects {
    fn put(&mut self, object: &Object) -> PutReply {
        if self.0.contains_key(&object.name) {
            return PutReply::Taken;
        }
        self.0.insert(object.name, object.bytes.as_slice().into());
        PutReply::Stored
    }
}

/// A store without faults.
pub(crate) struct PlainStore(pub(crate) RefCell<Objects>);

impl ObjectStore for PlainStore {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        let mut stored = self.0.borrow_mut();
        Ok(objects.iter().map(|object| stored.put(object)).collect())
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        Ok(self.0.borrow().0.get(&name).map(|bytes| bytes.to_vec()))
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        self.0.borrow_mut().0.remove(&name);
        Ok(())
    }
}

/// How much goes wrong in one run at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// PUTs that take effect, and whose reply is lost.
    pub(crate) lost_replies: u8,
    /// PUTs without a reply that take effect later or never.
    pub(crate) late_puts: u8,
    /// Programs that end in the middle.
    pub(crate) crashes: u8,
}

/// A running program.
#[derive(Clone, Debug)]
struct Actor {
    program: Program,
    replies: Rc<Vec<Reply>>,
    request: Option<Request>,
    /// Replies of a PUT of several objects so far.
    put: Vec<Option<PutReply>>,
    notes: Rc<Notes>,
    /// Entries that were acknowledged before the program began.
    acknowledged_before: Option<Vec<u8>>,
    error: Option<ObjectError>,
    has_crashed: bool,
}

impl Actor {
    fn new(program: Program) -> Self {
        let mut actor = Self {
            program,
            replies: Rc::default(),
            request: None,
            put: Vec::new(),
            notes: Rc::default(),
            acknowledged_before: None,
            error: None,
            has_crashed: false,
        };
        actor.go_on();
        actor
    }

    /// Runs the program up to its next request.
    fn go_on(&mut self) {
        assert!(self.replies.len() < REPLIES_MAX, "a program makes requests for ever");
        let script =
            Script { replies: self.replies.clone(), next: Cell::new(0), asked: RefCell::default() };
        let mut notes = Notes::default();
        let result = (self.program)(&script, &mut notes);
        self.notes = Rc::new(notes);
        self.request = script.asked.into_inner();
        self.put = match &self.request {
            Some(Request::Put(objects)) => vec![None; objects.len()],
            _ => Vec::new(),
        };
        self.error = result.err().filter(|_| self.request.is_none());
    }

    fn reply(&mut self, reply: Reply) {
        Rc::make_mut(&mut self.replies).push(reply);
        self.go_on();
    }

    /// Notes the reply to one object of a PUT.
    fn reply_to_put(&mut self, index: usize, reply: PutReply) {
        self.put[index] = Some(reply);
        if let Some(replies) = self.put.iter().copied().collect() {
            self.reply(Reply::Put(replies));
        }
    }
}

/// One state of the store and all programs.
#[derive(Clone, Debug)]
struct World {
    objects: Objects,
    actors: Vec<Actor>,
    late: Vec<Object>,
    faults: Faults,
}

/// One thing that may happen next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A request without a choice takes effect.
    Go(usize),
    /// An object of a PUT is stored, and the reply comes.
    Put(usize, usize),
    /// An object of a PUT is stored, and the reply is lost.
    LoseReply(usize, usize),
    /// The reply says nothing, and the object may be stored later.
    Delay(usize, usize),
    /// A delayed PUT takes effect.
    Land(usize),
    /// A program ends.
    Crash(usize),
}

impl World {
    fn events(&self) -> Vec<Event> {
        let mut events = (0..self.late.len()).map(Event::Land).collect::<Vec<_>>();
        for (actor, state) in self.actors.iter().enumerate() {
            match &state.request {
                None => continue,
                Some(Request::Put(_)) => {
                    let open = (0..state.put.len()).filter(|index| state.put[*index].is_none());
                    for index in open {
                        events.push(Event::Put(actor, index));
                        if self.faults.lost_replies > 0 {
                            events.push(Event::LoseReply(actor, index));
                        }
                        if self.faults.late_puts > 0 {
                            events.push(Event::Delay(actor, index));
                        }
                    }
                }
                // The grace time is longer than any request is under way.
                Some(Request::Delete(name))
                    if self.late.iter().any(|object| object.name == *name) => {}
                Some(_) => events.push(Event::Go(actor)),
            }
            if self.faults.crashes > 0 && !state.replies.is_empty() {
                events.push(Event::Crash(actor));
            }
        }
        events
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Go(actor) => {
                self.begin(actor);
                match self.actors[actor].request.clone() {
                    Some(Request::Get(name)) => {
                        let bytes = self.objects.0.get(&name).cloned();
                        self.actors[actor].reply(Reply::Get(bytes));
                    }
                    Some(Request::Delete(name)) => {
                        self.objects.0.remove(&name);
                        self.actors[actor].reply(Reply::Deleted);
                    }
                    request => panic!("{request:?} has choices"),
                }
            }
            Event::Put(actor, index) => {
                let reply = self.objects.put(&self.object(actor, index));
                self.actors[actor].reply_to_put(index, reply);
            }
            Event::LoseReply(actor, index) => {
                self.faults.lost_replies -= 1;
                self.objects.put(&self.object(actor, index));
                self.actors[actor].reply_to_put(index, PutReply::Unknown);
            }
            Event::Delay(actor, index) => {
                self.faults.late_puts -= 1;
                self.late.push(self.object(actor, index));
                self.actors[actor].reply_to_put(index, PutReply::Unknown);
            }
            Event::Land(index) => {
                let object = self.late.swap_remove(index);
                self.objects.put(&object);
            }
            Event::Crash(actor) => {
                self.faults.crashes -= 1;
                let state = &mut self.actors[actor];
                state.has_crashed = true;
                if let Some(Request::Put(objects)) = state.request.take() {
                    let open =
                        objects.into_iter().zip(&state.put).filter(|(_, reply)| reply.is_none());
                    self.late.extend(open.map(|(object, _)| object));
                }
                state.put.clear();
            }
        }
    }

    /// Notes what was acknowledged before the first step of a program.
    fn begin(&mut self, actor: usize) {
        if self.actors[actor].acknowledged_before.is_none() {
            self.actors[actor].acknowledged_before = Some(self.acknowledged());
        }
    }

    fn object(&self, actor: usize, index: usize) -> Object {
        match &self.actors[actor].request {
            Some(Request::Put(objects)) => objects[index].clone(),
            request => panic!("{request:?} is no PUT"),
        }
    }

    fn left(&self, is_end: bool) -> End<'_> {
        let programs = self.actors.iter().map(|actor| Ended {
            notes: &actor.notes,
            acknowledged_before: actor.acknowledged_before.as_deref().unwrap_or_default(),
            error: actor.error,
            has_crashed: actor.has_crashed,
        });
        End { objects: &self.objects, programs: programs.collect(), is_end }
    }

    fn acknowledged(&self) -> Vec<u8> {
        let mut entries = self
            .actors
            .iter()
            .flat_map(|actor| actor.notes.acknowledged.clone())
            .collect::<Vec<_>>();
        entries.sort_unstable();
        entries
    }

    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.objects.hash(&mut hasher);
        for actor in &self.actors {
            (&actor.replies, &actor.request, &actor.put, &actor.acknowledged_before)
                .hash(&mut hasher);
        }
        let mut late =
            self.late.iter().map(|object| (object.name, &object.bytes)).collect::<Vec<_>>();
        late.sort_unstable();
        (late, self.faults).hash(&mut hasher);
        hasher.finish()
    }
}

/// Result of exploring.
#[derive(Debug)]
pub(crate) struct Explored {
    /// Number of different states.
    pub(crate) states: u64,
    /// Number of states in which nothing more happens.
    pub(crate) ends: u64,
}

/// A run in which something is wrong.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// Description of the fault.
    pub(crate) reason: String,
    /// Events up to the fault, in order.
    pub(crate) events: Vec<String>,
}

/// Objects and results in a state.
pub(crate) struct End<'a> {
    /// The objects of the store.
    pub(crate) objects: &'a Objects,
    pub(crate) programs: Vec<Ended<'a>>,
    /// Whether all programs have ended.
    pub(crate) is_end: bool,
}

/// Results of a program so far.
pub(crate) struct Ended<'a> {
    pub(crate) notes: &'a Notes,
    /// Entries that were acknowledged before it began.
    pub(crate) acknowledged_before: &'a [u8],
    pub(crate) error: Option<ObjectError>,
    pub(crate) has_crashed: bool,
}

/// Runs the programs in every order, and calls `check` in each state.
pub(crate) fn explore(
    programs: &[Program],
    faults: Faults,
    check: &dyn Fn(&End<'_>) -> Result<(), String>,
) -> Result<Explored, Wrong> {
    let actors = programs.iter().map(|program| Actor::new(*program)).collect();
    let world = World { objects: Objects::default(), actors, late: Vec::new(), faults };
    let mut seen = HashSet::from([world.key()]);
    let mut explored = Explored { states: 1, ends: 0 };
    // Each entry: a state, the events that are left to try, and the one that has led there.
    let mut path: Vec<(World, Vec<Event>, String)> = Vec::new();
    let events = world.events();
    path.push((world, events, String::new()));
    while let Some((world, events, _)) = path.last_mut() {
        let Some(event) = events.pop() else {
            path.pop();
            continue;
        };
        let mut next = world.clone();
        next.apply(event);
        if !seen.insert(next.key()) {
            continue;
        }
        explored.states += 1;
        let text = describe(world, event);
        let is_end = next.actors.iter().all(|actor| actor.request.is_none());
        explored.ends += u64::from(is_end);
        let events = next.events();
        let result = match is_end || !events.is_empty() {
            true => check(&next.left(is_end)),
            false => Err("nothing goes on".to_owned()),
        };
        if let Err(reason) = result {
            let events = path.iter().map(|(_, _, text)| text.clone()).chain([text]).skip(1);
            return Err(Wrong { reason, events: events.collect() });
        }
        path.push((next, events, text));
    }
    Ok(explored)
}

fn describe(world: &World, event: Event) -> String {
    let request = |actor: usize| match &world.actors[actor].request {
        Some(Request::Get(name)) => format!("{actor}: get {name}"),
        Some(Request::Delete(name)) => format!("{actor}: delete {name}"),
        request => format!("{actor}: {request:?}"),
    };
    match event {
        Event::Go(actor) => request(actor),
        Event::Put(actor, index) => format!("{actor}: put {}", world.object(actor, index).name),
        Event::LoseReply(actor, index) => {
            format!("{actor}: put without reply {}", world.object(actor, index).name)
        }
        Event::Delay(actor, index) => {
            format!("{actor}: delayed put {}", world.object(actor, index).name)
        }
        Event::Land(index) => format!("late put {}", world.late[index].name),
        Event::Crash(actor) => format!("{actor}: crash"),
    }
}
