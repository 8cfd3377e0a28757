//! A store behind HTTP that answers as the test says: each status has the meaning that the protocol gives it, and no PUT is repeated
//! behind the protocol's back.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod server;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use server::{Answer, CUT, HttpServer, Received, bucket_at, dribble};
use sfs_object::{Epoch, Object, ObjectName, ObjectStore, Part, Patience, PutReply};

const KEYS: [&str; 2] = ["key", "secret"];

fn object() -> Object {
    Object { name: ObjectName::Log(Epoch(1), 1), bytes: b"content".to_vec() }
}

fn body(code: &str) -> String {
    format!("<Error><Code>{code}</Code><Message>A message.</Message></Error>")
}

#[test]
fn each_status_of_a_put_has_its_meaning_and_is_seen_once() {
    for (status, code, expected) in [
        (Some(200), "", Ok(PutReply::Stored)),
        (Some(412), "PreconditionFailed", Ok(PutReply::Taken)),
        (Some(409), "ConditionalRequestConflict", Ok(PutReply::Unknown)),
        (Some(500), "InternalError", Ok(PutReply::Unknown)),
        (Some(503), "SlowDown", Ok(PutReply::Unknown)),
        (Some(429), "TooManyRequests", Ok(PutReply::Unknown)),
        (None, "", Ok(PutReply::Unknown)),
        (Some(403), "AccessDenied", Err("the object store: A message. (AccessDenied)")),
        (Some(404), "NoSuchBucket", Err("the object store: A message. (NoSuchBucket)")),
        (Some(507), "", Err("507")),
    ] {
        let text = if code.is_empty() { String::new() } else { body(code) };
        let server = HttpServer::new(move |_| status.map(|status| (status, text.clone())));
        let store = bucket_at(&server.endpoint, KEYS, "bucket");
        match (store.put_all(&[object()]), expected) {
            (Ok(replies), Ok(expected)) => assert_eq!(replies, [expected], "{status:?}"),
            (Err(_), Err(expected)) => {
                let reason = store.trouble().expect("a reason").reason;
                assert!(reason.contains(expected), "{status:?}: {reason}");
            }
            other => panic!("{status:?}: {other:?}"),
        }
        let received = server.received();
        assert_eq!(received.len(), 1, "{status:?}: {received:?}");
        let request = &received[0];
        let path = "put /bucket/volume/0000000000000001/log/0000000000000001 ";
        assert!(request.head[0].starts_with(path), "{request:?}");
        assert!(request.head.contains(&"if-none-match: *".to_owned()), "{request:?}");
        assert!(!request.head.iter().any(|line| line.contains("secret")), "{request:?}");
    }
}

#[test]
fn objects_are_stored_as_they_come_until_one_is_not() {
    let at = |number| Object { name: ObjectName::Data(Epoch(1), number), bytes: vec![7; 1000] };
    let path = |number: u64| format!("/data/{number:016x} ");
    for (status, expected) in [(412, PutReply::Taken), (500, PutReply::Unknown)] {
        let bad = path(20);
        let server = HttpServer::new(move |request| {
            let is_bad = request.head[0].contains(&bad);
            Some((if is_bad { status } else { 200 }, String::new()))
        });
        let store = bucket_at(&server.endpoint, KEYS, "bucket");
        let mut objects = (1..=100).map(at);
        // Five at once.
        let mut stored = 0;
        let open = store.put_each(&mut objects, 5000, &mut |_| stored += 1).expect("replies");
        assert_eq!(open, [(at(20), expected)]);
        let next = objects.next().expect("the rest was not taken").name;
        assert!((21..=26).any(|number| next == at(number).name), "{next}");
        assert_eq!(store.put_each(&mut objects, 5000, &mut |_| stored += 1), Ok(Vec::new()));
        assert_eq!(stored, 98, "one was not, and one was taken by the test");
        assert!(objects.next().is_none());
        let received = server.received();
        assert_eq!(received.len(), 99, "one was taken by the test");
        for number in (1..=100).filter(|number| at(*number).name != next) {
            let count = received.iter().filter(|of| of.head[0].contains(&path(number)));
            assert_eq!(count.count(), 1, "{number}");
        }
    }
}

#[test]
fn a_missing_object_is_not_a_missing_bucket_and_reads_are_repeated() {
    let name = object().name;
    let with = |code: &'static str| HttpServer::new(move |_| Some((404, body(code))));
    let server = with("NoSuchKey");
    assert_eq!(bucket_at(&server.endpoint, KEYS, "bucket").get(name), Ok(None));
    let server = with("NoSuchBucket");
    assert!(bucket_at(&server.endpoint, KEYS, "bucket").get(name).is_err());

    let answers =
        Mutex::new(vec![Some((200, "content".to_owned())), None, Some((503, body("SlowDown")))]);
    let next = move |_: &Received| -> Answer { answers.lock().expect("no panic").pop().flatten() };
    let server = HttpServer::new(next);
    let store = bucket_at(&server.endpoint, KEYS, "bucket");
    assert_eq!(store.get(name), Ok(Some(b"content".to_vec())));
    assert_eq!(server.received().len(), 3);
}

/// Regression: a mount was refused when the connection ended in the middle of the body of a 404.
#[test]
fn a_reply_that_is_cut_tells_nothing() {
    let name = object().name;
    for (status, cut) in
        [(404, body("NoSuchKey")), (403, body("AccessDenied")), (200, String::new())]
    {
        let mut answers = vec![(200, "content".to_owned()), (status, format!("{cut}{CUT}"))];
        let server = HttpServer::new({
            let last = answers.remove(0);
            let answers = Mutex::new(answers);
            move |_| Some(answers.lock().expect("no panic").pop().unwrap_or(last.clone()))
        });
        let store = bucket_at(&server.endpoint, KEYS, "bucket");
        assert_eq!(store.get(name), Ok(Some(b"content".to_vec())), "{status}");
        assert_eq!(server.received().len(), 2, "{status}");
    }
}

/// Short pieces are copied together, and long ones are not: the bytes are the same however they come.
#[test]
fn a_body_is_read_in_whatever_pieces_it_comes() {
    const MIB: usize = 1 << 20;
    let name = object().name;
    let cases = [
        (20_000, vec![1]),
        // Short and long ones in turn, and short ones that are more than one of the answer.
        (4 * MIB + 5, [vec![1; 50], vec![MIB], vec![7; 9], vec![64 << 10, 3, 65_535]].concat()),
        (3 * MIB, vec![1000]),
        (0, vec![1]),
    ];
    for (len, pieces) in cases {
        let content = (0..len).map(|at| (at % 251) as u8).collect::<Vec<_>>();
        let endpoint = dribble(content.clone(), pieces.clone());
        let store = bucket_at(&endpoint, KEYS, "bucket");
        let read = store.get(name).expect("a reply").expect("an object");
        assert!(read == content, "{len} bytes in pieces of {pieces:?}: {}", read.len());
        if len >= MIB {
            let part = Part { name, offset: 0, len: len as u64 };
            let read = store.get_parts(&[part], None).expect("a reply").remove(0);
            assert!(read.as_ref() == Some(&content), "{len} bytes in pieces of {pieces:?}");
        }
    }
}

/// A store that is full, or to which the credentials do not fit, takes everything once that is mended: nobody gives up meanwhile, and each attempt has
/// the same bytes.
#[test]
fn a_mount_tries_again_what_a_store_refuses_until_it_does_not() {
    for (status, code) in [(403, "AccessDenied"), (507, "InsufficientStorage")] {
        let refuses = Arc::new(AtomicBool::new(true));
        let of_server = refuses.clone();
        let server = HttpServer::new(move |request| {
            let is_refused = of_server.load(Ordering::Acquire);
            Some(match (is_refused, &request.method[..]) {
                (true, _) => (status, body(code)),
                (false, "get") => (404, body("NoSuchKey")),
                (false, _) => (200, String::new()),
            })
        });
        let store = bucket_at(&server.endpoint, KEYS, "bucket");
        store.set_patience(Patience::OF_MOUNTS);
        let told = Arc::new(Mutex::new(Vec::new()));
        let of_observer = told.clone();
        store.observe(Box::new(move |trouble| {
            let refusal = trouble.map(|trouble| trouble.is_refusal);
            of_observer.lock().expect("no panic").push(refusal);
        }));
        let objects = (1..=100)
            .map(|number| Object { name: ObjectName::Log(Epoch(1), number), bytes: vec![0; 100] });
        let objects = objects.collect::<Vec<_>>();
        thread::scope(|scope| {
            let put = scope.spawn(|| store.put_all(&objects));
            let get = scope.spawn(|| store.get(ObjectName::Claim(Epoch(1))));
            // One attempt of all, and then one request at a time.
            while server.received().len() < 64 + 6 {
                thread::sleep(Duration::from_millis(5));
            }
            assert!(!put.is_finished() && !get.is_finished());
            let trouble = store.trouble().expect("it is refused");
            assert!(trouble.is_refusal && trouble.reason.contains(code), "{trouble:?}");
            // Nobody waits for a deletion.
            let name = objects[0].name;
            assert_eq!(store.delete_all(&[name]), Ok(vec![name]));
            assert!(server.received().len() < 300, "few requests find out that it is still so");
            refuses.store(false, Ordering::Release);
            assert_eq!(put.join().expect("no panic"), Ok(vec![PutReply::Stored; 100]));
            assert_eq!(get.join().expect("no panic"), Ok(None));
        });
        assert_eq!(store.delete_all(&[objects[0].name]), Ok(Vec::new()));
        assert!(store.trouble().is_none());
        let told = told.lock().expect("no panic").clone();
        assert_eq!((told.first(), told.last()), (Some(&Some(true)), Some(&None)), "{told:?}");
    }
}

/// Reads with a bound fail in an outage, the first after that time, and those that follow at once.
#[test]
fn reads_with_a_bound_fail_in_an_outage() {
    let refuses = Arc::new(AtomicBool::new(true));
    let of_server = refuses.clone();
    let server = HttpServer::new(move |_| match of_server.load(Ordering::Acquire) {
        true => Some((503, body("SlowDown"))),
        false => Some((404, body("NoSuchKey"))),
    });
    let store = bucket_at(&server.endpoint, KEYS, "bucket");
    store.set_patience(Patience::OF_MOUNTS);
    let part = Part { name: ObjectName::Data(Epoch(1), 1), offset: 0, len: 10 };
    let wait = Duration::from_millis(600);
    let begun = Instant::now();
    assert!(store.get_parts(&[part], Some(wait)).is_err());
    assert!(begun.elapsed() >= wait);
    let begun = Instant::now();
    assert!(store.get_parts(&[part], Some(wait)).is_err());
    assert!(begun.elapsed() < wait, "{:?}", begun.elapsed());
    assert_eq!(store.last_upload(), None);
    refuses.store(false, Ordering::Release);
    assert_eq!(store.get_parts(&[part], Some(wait)), Ok(vec![None]));
    assert!(store.trouble().is_none() && store.last_upload().is_some());
}

/// One object is refused for ever, as an archived one, while others are read all the time.
#[test]
fn a_read_with_a_bound_fails_alone() {
    let server = HttpServer::new(move |request| match request.head[0].contains("/data/") {
        true => Some((403, body("InvalidObjectState"))),
        false => Some((404, body("NoSuchKey"))),
    });
    let store = bucket_at(&server.endpoint, KEYS, "bucket");
    store.set_patience(Patience::OF_MOUNTS);
    let part = |name| [Part { name, offset: 0, len: 10 }];
    let is_over = AtomicBool::new(false);
    let begun = Instant::now();
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let absent = part(ObjectName::Log(Epoch(1), 1));
                assert_eq!(store.get_parts(&absent, None), Ok(vec![None]));
                thread::sleep(Duration::from_millis(20));
            }
        });
        let refused = part(ObjectName::Data(Epoch(1), 1));
        let read = store.get_parts(&refused, Some(Duration::from_millis(600)));
        is_over.store(true, Ordering::Release);
        assert!(read.is_err());
        others.join().expect("others are answered");
    });
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// The end of a mount bounds reads that are under way, whatever bound they have.
#[test]
fn reads_that_are_under_way_end_with_the_mount() {
    let server = HttpServer::new(|_| Some((503, body("SlowDown"))));
    for wait in [None, Some(Duration::from_secs(3600))] {
        let store = bucket_at(&server.endpoint, KEYS, "bucket");
        store.set_patience(Patience::OF_MOUNTS);
        let part = Part { name: ObjectName::Data(Epoch(1), 1), offset: 0, len: 10 };
        let begun = Instant::now();
        thread::scope(|scope| {
            let read = scope.spawn(|| store.get_parts(&[part], wait));
            thread::sleep(Duration::from_millis(200));
            assert!(!read.is_finished(), "nothing bounds it yet");
            store.bound_reads(Duration::from_millis(600));
            assert!(read.join().expect("no panic").is_err());
        });
        assert!(begun.elapsed() < Duration::from_secs(10), "{wait:?}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_probe_refuses_a_store_that_does_not_honour_the_condition() {
    let server = HttpServer::new(|_| Some((200, "x".repeat(64))));
    let store = bucket_at(&server.endpoint, KEYS, "bucket");
    let refused = store.probe().expect_err("each PUT is stored");
    assert!(
        refused.starts_with("this object store cannot hold a volume, because it does not honour")
            && refused.ends_with("two PUTs with If-None-Match: * of one name were both taken"),
        "{refused}"
    );
    let methods = server.received().into_iter().map(|request| request.method);
    assert_eq!(methods.collect::<Vec<_>>(), ["put", "put", "get", "delete"]);

    // A server that takes nothing, and one that loses what it takes.
    let server = HttpServer::new(|request| match &request.method[..] {
        "put" => Some((412, body("PreconditionFailed"))),
        _ => Some((404, body("NoSuchKey"))),
    });
    let refused = bucket_at(&server.endpoint, KEYS, "bucket").probe().expect_err("no PUT");
    assert!(refused.ends_with("no PUT of a free name was taken"), "{refused}");
    let puts = Mutex::new(0);
    let server = HttpServer::new(move |request| match &request.method[..] {
        "put" => {
            let mut puts = puts.lock().expect("no panic");
            *puts += 1;
            Some(if *puts == 1 { (200, String::new()) } else { (412, body("PreconditionFailed")) })
        }
        _ => Some((404, body("NoSuchKey"))),
    });
    let refused = bucket_at(&server.endpoint, KEYS, "bucket").probe().expect_err("it is lost");
    assert!(refused.ends_with("an object that was just stored cannot be read"), "{refused}");
}
