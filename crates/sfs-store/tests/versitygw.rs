//! A real server of S3: versitygw, with a directory behind it.
//!
//! `go install github.com/versity/versitygw/cmd/versitygw@latest` installs it. Without it the tests are skipped.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod server;

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use server::{bucket_at, request};
use sfs_device::{Block, Device, RamDevice, Stream};
use sfs_object::{Epoch, Object, ObjectDevice, ObjectName, ObjectStore, PutReply, Shape, create};

const KEYS: [&str; 2] = ["sfskey", "sfssecret"];

/// A server, which ends with the value.
struct Gateway {
    process: Child,
    endpoint: String,
    _directory: tempfile::TempDir,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the server's program, or prints that it is missing.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_go = std::env::home_dir().map(|home| home.join("go/bin"));
    let mut dirs = std::env::split_paths(&path).chain(of_go);
    let found = dirs.find_map(|dir| Some(dir.join("versitygw")).filter(|file| file.is_file()));
    if found.is_none() {
        eprintln!(
            "skipped: versitygw is missing: go install github.com/versity/versitygw/cmd/versitygw@latest"
        );
    }
    found
}

/// Starts a server with one bucket.
fn gateway() -> Option<Gateway> {
    let program = program()?;
    let directory = tempfile::tempdir().expect("a directory");
    let [root, attributes] = ["root", "attributes"].map(|name| directory.path().join(name));
    for dir in [&root, &attributes, &root.join("bucket")] {
        std::fs::create_dir(dir).expect("a directory");
    }
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let address = format!("127.0.0.1:{}", port.expect("a port").port());
    let mut command = Command::new(program);
    command.args(["--access", KEYS[0], "--secret", KEYS[1], "--port", &address, "posix"]);
    // Attributes in files: not every filesystem of tests has extended ones.
    command.arg("--sidecar").arg(attributes).arg(root);
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("versitygw");
    let gateway = Gateway { process, endpoint: format!("http://{address}"), _directory: directory };
    let end = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(&address).is_err() {
        assert!(Instant::now() < end, "versitygw does not listen");
        thread::sleep(Duration::from_millis(20));
    }
    Some(gateway)
}

#[test]
#[ignore = "needs versitygw"]
fn versitygw_honours_the_condition_and_decides_each_race() {
    let Some(gateway) = gateway() else { return };
    let store = || bucket_at(&gateway.endpoint, KEYS, "bucket");
    assert_eq!(store().probe(), Ok(()));
    let (begin, count) = (Arc::new(Barrier::new(2)), 100);
    let object =
        |number, byte| Object { name: ObjectName::Data(Epoch(1), number), bytes: vec![byte; 3000] };
    let racers = [1, 2].map(|who| {
        let (store, begin) = (store(), begin.clone());
        let objects = (1..=count).map(|number| object(number, who)).collect::<Vec<_>>();
        thread::spawn(move || {
            store.get(objects[0].name).expect("the program runs");
            begin.wait();
            store.put_all(&objects).expect("a store")
        })
    });
    let [one, two] = racers.map(|racer| racer.join().expect("no panic"));
    for (number, outcomes) in (1..=count).zip(one.into_iter().zip(two)) {
        let found = store().get(object(number, 0).name).expect("a store").expect("an object");
        match outcomes {
            (PutReply::Stored, PutReply::Stored) => panic!("{number}: both were stored"),
            (PutReply::Stored, _) => assert_eq!(found, vec![1; 3000], "{number}"),
            (_, PutReply::Stored) => assert_eq!(found, vec![2; 3000], "{number}"),
            // Neither knows; the object says it.
            (_, _) => assert!(found == vec![1; 3000] || found == vec![2; 3000], "{number}"),
        }
    }
    let wrong = bucket_at(&gateway.endpoint, ["sfskey", "wrong"], "bucket");
    let refused = wrong.probe().expect_err("the key is wrong");
    assert!(refused.contains("SignatureDoesNotMatch"), "{refused}");
    let missing = bucket_at(&gateway.endpoint, KEYS, "none").probe().expect_err("no bucket");
    assert!(missing.contains("NoSuchBucket"), "{missing}");
}

#[test]
#[ignore = "needs versitygw"]
fn a_volume_on_versitygw_is_read_back_without_its_cache() {
    let Some(gateway) = gateway() else { return };
    let shape = Shape { volume_blocks: 4096, region_blocks: 256 };
    let cache = || Arc::new(RamDevice::new(shape.cache_blocks()));
    let store = bucket_at(&gateway.endpoint, KEYS, "bucket");
    let volume = create(store, cache(), ([7; 16], shape), &request(1)).expect("a new volume");
    for round in 1..=10_u8 {
        let blocks = vec![Block([round; 4096]); 300];
        volume.write(u64::from(round) * 300, &[&blocks], Stream::default()).expect("the cache");
        volume.flush().expect("the store has it");
    }
    volume.close(1_000).expect("a close");
    let store = bucket_at(&gateway.endpoint, KEYS, "bucket");
    let volume = ObjectDevice::open(store, cache(), &request(2)).expect("a released volume");
    let mut blocks = Block::zeroed(4096);
    volume.read(0, &mut blocks).expect("blocks");
    let is_right = |(at, block): (usize, &Block)| {
        let expected = if (300..3300).contains(&at) { (at / 300) as u8 } else { 0 };
        block.0.iter().all(|byte| *byte == expected)
    };
    assert!(blocks.iter().enumerate().all(is_right));
}
