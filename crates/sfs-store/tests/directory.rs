//! A store in a directory, through the program and its socket: outcomes of requests, races, and the death of the program.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod server;

use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use server::{PROGRAM, SHORT, request, store_at};
use sfs_device::{Block, Device, RamDevice, Stream};
use sfs_object::{
    Epoch, Object, ObjectDevice, ObjectName, ObjectStore, Part, Patience, PutReply, Shape,
    SocketStore, create,
};

fn url_of(dir: &tempfile::TempDir) -> String {
    format!("file://{}", dir.path().display())
}

fn object(number: u64, byte: u8, len: usize) -> Object {
    Object { name: ObjectName::Data(Epoch(1), number), bytes: vec![byte; len] }
}

fn signal(signal: &str, process: u32) {
    let sent = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(sent.expect("kill").success());
}

#[test]
fn the_first_put_of_a_name_decides_its_content() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, _program) = store_at(&url_of(&dir), SHORT);
    let (first, other) = (object(1, 1, 5000), object(1, 2, 10));
    assert_eq!(store.put_all(std::slice::from_ref(&first)), Ok(vec![PutReply::Stored]));
    assert_eq!(
        store.put_all(&[other, object(2, 3, 0)]),
        Ok(vec![PutReply::Taken, PutReply::Stored])
    );
    let names = [first.name, ObjectName::Data(Epoch(1), 3), ObjectName::Data(Epoch(1), 2)];
    let found = store.get_all(&names).expect("a store");
    assert_eq!(found, [Some(first.bytes.clone()), None, Some(Vec::new())]);

    let part = |name, offset, len| Part { name, offset, len };
    let parts = [
        part(first.name, 10, 20),
        part(first.name, 4990, 20),
        part(first.name, 5000, 20),
        part(first.name, 9000, 1),
        part(first.name, 7, 0),
        part(names[1], 0, 1),
        part(names[1], 0, 0),
    ];
    let lens = store.get_parts(&parts, None).expect("a store");
    let lens = lens.into_iter().map(|bytes| bytes.map(|bytes| bytes.len())).collect::<Vec<_>>();
    assert_eq!(lens, [Some(20), Some(10), Some(0), Some(0), Some(0), None, None]);

    assert_eq!(store.delete(first.name), Ok(()));
    assert_eq!(store.delete(first.name), Ok(()), "there is nothing to delete");
    assert_eq!(store.get(first.name), Ok(None));
}

#[test]
fn a_probe_accepts_a_directory_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, _program) = store_at(&url_of(&dir), SHORT);
    assert_eq!(store.probe(), Ok(()));
    let left = std::fs::read_dir(dir.path().join("probe")).expect("the folder of names").count();
    assert_eq!(left, 0);
}

#[test]
fn of_two_programs_that_race_for_names_one_gets_each() {
    let dir = tempfile::tempdir().expect("a directory");
    let (begin, count) = (Arc::new(Barrier::new(2)), 200);
    let racers = [1, 2].map(|who: u8| {
        let (url, begin) = (url_of(&dir), begin.clone());
        thread::spawn(move || {
            let (store, _program) = store_at(&url, SHORT);
            store.get(object(1, 0, 0).name).expect("the program runs");
            let objects = (1..=count).map(|number| object(number, who, 3000)).collect::<Vec<_>>();
            begin.wait();
            store.put_all(&objects).expect("a store")
        })
    });
    let [one, two] = racers.map(|racer| racer.join().expect("no panic"));
    let (store, _program) = store_at(&url_of(&dir), SHORT);
    for (number, outcomes) in (1..=count).zip(one.into_iter().zip(two)) {
        let winner = match outcomes {
            (PutReply::Stored, PutReply::Taken) => 1,
            (PutReply::Taken, PutReply::Stored) => 2,
            other => panic!("{number}: {other:?}"),
        };
        let found = store.get(object(number, 0, 0).name).expect("a store");
        assert_eq!(found, Some(vec![winner; 3000]), "{number}");
    }
}

#[test]
fn a_put_is_unknown_when_the_program_dies_and_another_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, program) = store_at(&url_of(&dir), Patience::OF_MOUNTS);
    assert_eq!(store.put_all(&[object(1, 1, 10)]), Ok(vec![PutReply::Stored]));
    for round in 2..8 {
        let process = program.process_id().expect("a program");
        // It reads nothing more, so the request is under way when it dies.
        signal("-STOP", process);
        let (of_put, of_get) = (store.clone(), store.clone());
        let put = thread::spawn(move || of_put.put_all(&[object(round, 1, 10)]));
        let get = thread::spawn(move || of_get.get(object(1, 1, 10).name));
        thread::sleep(Duration::from_millis(50));
        assert!(!put.is_finished() && !get.is_finished());
        signal("-KILL", process);
        assert_eq!(put.join().expect("no panic"), Ok(vec![PutReply::Unknown]));
        assert_eq!(get.join().expect("no panic"), Ok(Some(vec![1; 10])), "reads are repeated");
        assert_ne!(program.process_id(), Some(process));
        let again = store.put_all(&[object(round, 1, 10)]).expect("a store");
        assert!(matches!(again[..], [PutReply::Stored | PutReply::Taken]), "{again:?}");
        assert_eq!(store.get(object(round, 0, 0).name), Ok(Some(vec![1; 10])));
        assert!(store.trouble().is_none());
    }
}

#[test]
fn a_store_that_cannot_be_used_is_given_up_with_a_reason() {
    let (store, _program) = store_at("file:///no/such/directory", SHORT);
    let begin = Instant::now();
    assert!(store.get(object(1, 1, 1).name).is_err());
    let reason = store.trouble().expect("a reason").reason;
    assert_eq!(reason, "file:///no/such/directory: there is no such directory");
    assert_eq!(store.probe(), Err(reason));
    assert!(begin.elapsed() < Duration::from_secs(2), "what is refused is not tried again");

    let missing = || Err(std::io::Error::other("no such program"));
    let missing = SocketStore::new(Box::new(missing), SHORT);
    assert!(missing.get(object(1, 1, 1).name).is_err());
    let reason = missing.trouble().expect("a reason").reason;
    assert!(reason.ends_with("no such program"), "{reason}");
    assert!(begin.elapsed() < Duration::from_secs(2), "what has never started is not tried again");

    let ended = SocketStore::new(
        Box::new(|| UnixStream::pair().map(|(ours, _)| ours)),
        Patience { unreachable: Some(Duration::from_millis(300)), ..SHORT },
    );
    // Whoever decides a name repeats what is unknown.
    let replies = std::iter::repeat_with(|| ended.put_all(&[object(1, 1, 1)])).take(50);
    let replies = replies.take_while(|reply| reply.is_ok()).collect::<Vec<_>>();
    assert!((1..50).contains(&replies.len()), "{}", replies.len());
    assert!(replies.iter().all(|reply| *reply == Ok(vec![PutReply::Unknown])));
    let reason = ended.trouble().expect("a reason").reason;
    assert!(reason.contains("cannot be used"), "{reason}");
}

#[test]
fn a_stop_ends_a_wait() {
    let connect = || UnixStream::pair().map(|(ours, _)| ours);
    let store = Arc::new(SocketStore::new(Box::new(connect), Patience::OF_MOUNTS));
    let of_thread = store.clone();
    let waiting = thread::spawn(move || of_thread.get(object(1, 1, 1).name));
    thread::sleep(Duration::from_millis(300));
    assert!(!waiting.is_finished(), "a mount waits for ever");
    store.stop();
    assert!(waiting.join().expect("no panic").is_err());
}

#[test]
fn a_program_that_is_started_without_a_socket_says_what_it_is_for() {
    for (arguments, expected) in [
        (vec!["file:///tmp"], "standard input is not the socket of a program of SFS"),
        (vec![], "usage: sfs-store URL, started by a program of SFS"),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(&arguments).stdin(std::process::Stdio::null());
        let output = command.output().expect("the program");
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(expected), "{text}");
    }
}

const SHAPE: Shape = Shape { volume_blocks: 320, region_blocks: 32 };

/// The volume of decision 47, on a real store whose program is killed again and again while blocks are written.
#[test]
fn a_volume_survives_the_death_of_the_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, program) = store_at(&url_of(&dir), Patience::OF_MOUNTS);
    let local = Arc::new(RamDevice::new(SHAPE.cache_blocks()));
    let volume = create(store.clone(), local, ([7; 16], SHAPE), &request(1)).expect("a new volume");
    for round in 1..=20_u8 {
        let blocks = vec![Block([round; 4096]); 40];
        volume.write(u64::from(round) * 10, &[&blocks], Stream::default()).expect("the cache");
        // Each round a moment later in the course of the flush.
        let process = program.process_id().expect("a program");
        let killer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(u64::from(round / 2)));
            signal("-KILL", process);
        });
        volume.flush().expect("the store has it");
        killer.join().expect("the process was there");
    }
    volume.close(1_000).expect("a close");

    let empty = Arc::new(RamDevice::new(SHAPE.cache_blocks()));
    let volume = ObjectDevice::open(store, empty, &request(2)).expect("a released volume");
    let mut blocks = Block::zeroed(320);
    volume.read(0, &mut blocks).expect("blocks");
    let found = blocks.iter().map(|block| u64::from(block.0[0])).collect::<Vec<_>>();
    let expected = |at: u64| if at < 240 { (at / 10).min(20) } else { 0 };
    assert_eq!(found, (0..320).map(expected).collect::<Vec<_>>());
}
