//! The store behind a pair of sockets, whose program ends at any moment: what is stored is known, and all else is open.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sfs_object::store_protocol::{GREETING, REQUEST_LEN, Reply, Request};
use sfs_object::{Epoch, Object, ObjectName, ObjectStore, Patience, PutReply, SocketStore};

/// Length of an object, of which a socket does not take some at once.
const LEN: usize = 300_000;

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It reads half of a request.
    HalfRead,
    /// It has read a request, and done nothing.
    Undone,
    /// It has stored an object, and not said so.
    Unsaid,
    /// It has said half of a reply.
    HalfSaid,
}

type Objects = Arc<Mutex<BTreeMap<ObjectName, Vec<u8>>>>;

/// Serves a connection until it ends, or its end comes after so many requests.
fn serve(mut socket: UnixStream, objects: &Objects, end: Option<(u32, End)>) -> io::Result<()> {
    socket.write_all(&GREETING)?;
    socket.write_all(&Reply::Done.encode(0))?;
    for count in 0.. {
        let end = end.filter(|(after, _)| *after == count).map(|(_, end)| end);
        let mut head = [0; REQUEST_LEN];
        socket.read_exact(&mut head)?;
        let (number, request, len) = Request::decode(&head)?;
        let is_half = end == Some(End::HalfRead);
        let mut body = vec![0; len as usize / if is_half { 2 } else { 1 }];
        socket.read_exact(&mut body)?;
        if is_half || end == Some(End::Undone) {
            return Ok(());
        }
        let mut objects = objects.lock().expect("no panic");
        let reply = match request {
            Request::Put(name) if objects.contains_key(&name) => Reply::Taken,
            Request::Put(name) => {
                objects.insert(name, body);
                Reply::Done
            }
            Request::Get(name) => {
                objects.get(&name).map_or(Reply::Absent, |bytes| Reply::Found(bytes.clone()))
            }
            _ => Reply::Refused("not in this test".into()),
        };
        drop(objects);
        let bytes = [&reply.encode(number)[..], reply.body()].concat();
        match end {
            Some(End::Unsaid) => return Ok(()),
            Some(_) => return socket.write_all(&bytes[..bytes.len() / 2]),
            None => socket.write_all(&bytes)?,
        }
    }
    Ok(())
}

fn object(number: u64) -> Object {
    Object { name: ObjectName::Data(Epoch(1), number), bytes: vec![number as u8; LEN] }
}

const OF_MOUNTS: Patience = Patience::OF_MOUNTS;

#[test]
fn of_objects_that_are_stored_as_they_come_none_is_forgotten_when_the_program_ends() {
    for end in [End::HalfRead, End::Undone, End::Unsaid, End::HalfSaid] {
        for after in [0, 1, 5] {
            let objects = Objects::default();
            let starts = Arc::new(AtomicU32::new(0));
            let (of_program, count) = (objects.clone(), starts.clone());
            let connect = move || {
                let (ours, theirs) = UnixStream::pair()?;
                let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
                let objects = of_program.clone();
                let end = is_first.then_some((after, end));
                thread::spawn(move || serve(theirs, &objects, end));
                Ok(ours)
            };
            let store = SocketStore::new(Box::new(connect), OF_MOUNTS);
            let mut rest = (1..=12).map(object);
            let mut stored = Vec::new();
            // Four at once.
            let open = store.put_each(&mut rest, 4 * LEN, &mut |name| stored.push(name));
            let open = open.expect("a mount never gives up");
            let case = format!("{end:?} after {after}");
            // What it has said before its end is perhaps not heard, as more is sent just then.
            assert!(stored.len() <= after as usize, "{case}: {}", stored.len());
            assert!((1..=4).contains(&open.len()), "{case}: {}", open.len());
            assert!(open.iter().all(|(_, reply)| *reply == PutReply::Unknown), "{case}");
            // In their order, with their bytes, and none twice or in neither place.
            let sent = stored.iter().copied().chain(open.iter().map(|(object, _)| object.name));
            let expected = (1..=(stored.len() + open.len()) as u64).map(|no| object(no).name);
            assert!(sent.eq(expected), "{case}");
            for (sent, _) in &open {
                let again = store.put_all(std::slice::from_ref(sent)).expect("a new program");
                let is_there = store.get(sent.name).expect("a reply") == Some(sent.bytes.clone());
                assert!(is_there && again != [PutReply::Unknown], "{case}: {again:?}");
            }
            let left = store.put_each(&mut rest, 4 * LEN, &mut |name| stored.push(name));
            assert_eq!(left, Ok(Vec::new()), "{case}");
            assert_eq!(stored.len() + open.len(), 12, "{case}");
            assert_eq!(starts.load(Ordering::SeqCst), 2, "{case}");
            let objects = objects.lock().expect("no panic");
            assert!((1..=12).map(object).all(|of| objects[&of.name] == of.bytes), "{case}");
        }
    }
}

/// Regression: a program that could not be started was started again at once for the same PUT.
#[test]
fn for_one_attempt_the_program_is_started_once() {
    let objects = Objects::default();
    objects.lock().expect("no panic").insert(ObjectName::Claim(Epoch(1)), b"claim".to_vec());
    let starts = Arc::new(AtomicU32::new(0));
    let count = starts.clone();
    let connect = move || {
        if count.fetch_add(1, Ordering::SeqCst) > 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (ours, theirs) = UnixStream::pair()?;
        let objects = objects.clone();
        // It answers one request.
        thread::spawn(move || serve(theirs, &objects, Some((1, End::Undone))));
        Ok(ours)
    };
    let store = SocketStore::new(Box::new(connect), OF_MOUNTS);
    store.remember_volume().expect("it is there");
    let put = |number| {
        store.put_each(&mut std::iter::once(object(number)), LEN, &mut |_| panic!("it is gone"))
    };
    // The program ends with this one.
    assert_eq!(put(1), Ok(vec![(object(1), PutReply::Unknown)]));
    assert_eq!(starts.load(Ordering::SeqCst), 1);
    for expected in [2, 3] {
        assert_eq!(put(2), Ok(vec![(object(2), PutReply::Unknown)]));
        assert_eq!(starts.load(Ordering::SeqCst), expected);
        assert!(store.trouble().expect("it is gone").reason.contains("cannot start"));
    }
    // Before the volume is known such a trouble is final, unless there is patience with refusals.
    for refusing in [Duration::ZERO, Duration::from_millis(1)] {
        let starts = Arc::new(AtomicU32::new(0));
        let count = starts.clone();
        let connect = move || {
            count.fetch_add(1, Ordering::SeqCst);
            Err(io::ErrorKind::NotFound.into())
        };
        let patience = Patience { unreachable: Some(Duration::ZERO), refusing };
        let store = SocketStore::new(Box::new(connect), patience);
        let begun = Instant::now();
        let open = store.put_each(&mut std::iter::once(object(1)), LEN, &mut |_| {});
        assert!(open.is_err());
        let has_paused = begun.elapsed() >= Duration::from_millis(50);
        assert!(starts.load(Ordering::SeqCst) == 1 || has_paused && !refusing.is_zero());
    }
}
