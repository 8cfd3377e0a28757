//! Snapshots of objects that somebody else has written, with right checksums.

use sfs_device::{Block, Device, RamDevice, Stream};
use sfs_testkit::SeededRng;

use super::*;
use crate::frame::{Content, Frame, Manifest, Nonce};
use crate::memory_store::MemoryStore;
use crate::name::ObjectName;
use crate::store::Object;
use crate::volume::{Durability, Limits, ObjectDevice, OpenRequest, Shape, create};

const SHAPE: Shape = Shape { volume_blocks: 9 * 32 - 5, region_blocks: 32 };

type Store = Arc<MemoryStore>;

fn request(nonce: u8) -> OpenRequest {
    OpenRequest {
        nonce: Nonce([nonce; 16]),
        host: "host".into(),
        now: 1_000,
        takes_over: true,
        durability: Durability::Local,
        limits: Limits::of_mount(1 << 30),
    }
}

fn cache() -> Arc<RamDevice> {
    Arc::new(RamDevice::new(SHAPE.cache_blocks()))
}

fn pages() -> Arc<PageCache> {
    Arc::new(PageCache::new(1 << 20))
}

/// Returns a volume in use, with log objects of two epochs and data objects, and its writer.
fn volume() -> (Store, ObjectDevice<Store>) {
    let store = Store::default();
    let first = create(store.clone(), cache(), ([7; 16], SHAPE), &request(1)).expect("a volume");
    write(&first, 0, 40, 1);
    first.join().expect("data objects");
    write(&first, 35, 3, 2);
    first.upload().expect("a log object");
    let second = ObjectDevice::open(store.clone(), cache(), &request(2)).expect("a takeover");
    write(&second, 36, 1, 3);
    write(&second, 64, 32, 3);
    second.upload().expect("a log object");
    (store, second)
}

fn write(volume: &ObjectDevice<Store>, address: u64, count: usize, byte: u8) {
    volume
        .write(address, &[&vec![Block([byte; 4096]); count]], Stream::default())
        .expect("a write");
}

fn read(snapshot: &impl Device) -> Result<Vec<u8>, DeviceError> {
    let mut blocks = Block::zeroed(SHAPE.volume_blocks as usize);
    snapshot.read(0, &mut blocks)?;
    Ok(blocks.iter().map(|block| block.0[0]).collect())
}

/// Returns a copy of the store in which each object has what `change` makes of its content.
fn changed(store: &Store, mut change: impl FnMut(ObjectName, &mut Vec<u8>)) -> Store {
    let copy = Store::default();
    for name in store.names() {
        let bytes = store.get(name).expect("memory").expect("an object");
        let mut frame = Frame::decode(name, &bytes).expect("sound");
        match &mut frame.content {
            Content::Data(bytes) | Content::Manifest(Manifest { state: bytes, .. }) => {
                change(name, bytes);
            }
            Content::Claim | Content::Seal(_) => {}
        }
        copy.put(&Object { name, bytes: frame.encode(name) });
    }
    copy
}

#[test]
fn a_snapshot_is_the_newest_state_and_stays_it() {
    let (store, writer) = volume();
    let before = store.names();
    let snapshot = Snapshot::open(store.clone(), pages()).expect("a state");
    let expected = read(&writer).expect("the image");
    assert_eq!(expected[35..40], [2, 3, 2, 1, 1]);
    assert_eq!(read(&snapshot).expect("content"), expected);
    assert_eq!(snapshot.state().host, "host");
    assert!(snapshot.newer().expect("a store").is_none());
    write(&writer, 0, 1, 9);
    writer.upload().expect("a log object");
    assert_eq!(read(&snapshot).expect("content"), expected);
    let newer = snapshot.newer().expect("a store").expect("a log object more");
    assert_eq!(read(&newer).expect("content")[..2], [9, 1]);
    writer.join().expect("a manifest");
    let joined = newer.newer().expect("a store").expect("a manifest more");
    assert_eq!(read(&joined).expect("content"), read(&writer).expect("the image"));
    assert!(!before.iter().any(|name| !store.names().contains(name)), "nothing is deleted");
    let refused = snapshot.write(0, &[&Block::zeroed(1)], Stream::default());
    let refused = refused.expect_err("a snapshot").source.kind();
    assert_eq!(refused, io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn a_missing_object_is_an_old_state_or_a_damaged_volume() {
    let (store, writer) = volume();
    let opened = || Snapshot::open(store.clone(), Arc::new(PageCache::new(0))).expect("a state");
    let old = opened();
    write(&writer, 64, 32, 4);
    writer.join().expect("a manifest");
    let data = |name: &ObjectName| matches!(name, ObjectName::Data(..));
    for name in store.names().into_iter().filter(data) {
        store.delete(name).expect("memory");
    }
    for (snapshot, is_old) in [(old, true), (opened(), false)] {
        let error = read(&snapshot).expect_err("no objects");
        let kind = error.source.kind();
        assert_eq!(kind == io::ErrorKind::StaleNetworkFileHandle, is_old, "{error}");
        assert_eq!(snapshot.is_old(), is_old);
        assert!(is_old || error.to_string().contains("is missing"), "{error}");
    }
}

#[test]
fn memory_stays_in_its_limit() {
    let (store, _writer) = volume();
    let pages = Arc::new(PageCache::new(100_000));
    let snapshot = Snapshot::open(store, pages.clone()).expect("a state");
    for address in (0..SHAPE.volume_blocks).rev() {
        snapshot.read(address, &mut Block::zeroed(1)).expect("content");
        assert!((1..=100_000).contains(&pages.bytes()) || address > 95, "{}", pages.bytes());
    }
}

#[test]
fn a_short_object_is_damage() {
    let (store, _writer) = volume();
    let short = changed(&store, |name, bytes| {
        if matches!(name, ObjectName::Data(..)) {
            bytes.pop();
        }
    });
    let snapshot = Snapshot::open(short, pages()).expect("a state");
    let error = read(&snapshot).expect_err("a block is not whole").to_string();
    assert!(error.contains("is damaged"), "{error}");
}

/// An attacker who can write to the bucket computes checksums.
#[test]
fn random_bytes_neither_panic_nor_take_memory() {
    let (store, _writer) = volume();
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..2_000 {
        let mut rng = SeededRng::new(seed);
        let hostile = changed(&store, |_, bytes| {
            for _ in 0..rng.below(3) {
                // Most bytes are content of blocks.
                let at = rng.below((bytes.len() as u64).min(300)) as usize;
                let value = rng.pick(&[0, 1, 2, 0x7f, 0xff]);
                let run = rng.pick(&[1, 8]).min(bytes.len() - at);
                bytes[at..at + run].fill(value);
            }
        });
        match Snapshot::open(hostile, pages()) {
            Ok(snapshot) => {
                opened += 1;
                let mut blocks = Block::zeroed(64);
                let end = snapshot.geometry().block_count;
                for address in [0, end / 2, end - end.min(64)] {
                    let count = (end - address).min(64) as usize;
                    let _ = snapshot.read(address, &mut blocks[..count]);
                }
                let _ = snapshot.newer();
            }
            Err(_) => refused += 1,
        }
    }
    assert!(opened > 100 && refused > 100, "{opened} opened, {refused} refused");
}

/// Numbers whose sums would overflow.
#[test]
fn the_largest_numbers_are_refused() {
    let (store, _writer) = volume();
    let hostile = changed(&store, |name, bytes| {
        if matches!(name, ObjectName::Log(..)) {
            *bytes = 1u64.to_le_bytes().to_vec();
            bytes.push(2);
            [0, u64::MAX, u64::MAX]
                .iter()
                .for_each(|value: &u64| bytes.extend(value.to_le_bytes()));
        }
    });
    let refused = Snapshot::open(hostile, pages()).map(|_| ());
    assert!(matches!(refused, Err(OpenError::State)), "{refused:?}");
}
