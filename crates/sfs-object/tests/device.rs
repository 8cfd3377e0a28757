//! An object volume as a device: who may use it, what is deleted, and two writers at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use sfs_device::{Block, Device, RamDevice, Stream};
use sfs_object::{
    Durability, EncryptedStore, Epoch, FileKey, Limits, MemoryStore, Nonce, Object, ObjectDevice,
    ObjectName, ObjectStore, OpenError, OpenRequest, PutReply, Shape, Stopped, create,
    system_random,
};

const SHAPE: Shape = Shape { volume_blocks: 320, region_blocks: 32 };

const GRACE: u64 = 60;

type Volume = ObjectDevice<Arc<MemoryStore>>;

fn cache() -> Arc<RamDevice> {
    Arc::new(RamDevice::new(SHAPE.cache_blocks()))
}

/// Returns the request of a writer, with a nonce that no other has.
fn request(host: &str, takes_over: bool) -> OpenRequest {
    static NONCE: AtomicU64 = AtomicU64::new(1);
    let nonce = u128::from(NONCE.fetch_add(1, Ordering::Relaxed));
    OpenRequest {
        nonce: Nonce(nonce.to_le_bytes()),
        host: host.to_owned(),
        now: 1_000,
        takes_over,
        durability: Durability::Remote,
        limits: Limits { grace_secs: GRACE, ..Limits::of_mount(1 << 30) },
    }
}

/// Makes a volume, and ends its use.
fn made() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::default());
    let volume = create(store.clone(), cache(), ([7; 16], SHAPE), &request("maker", false));
    volume.expect("a volume").close(1_000).expect("a close");
    store
}

fn write(volume: &Volume, address: u64, count: u64, byte: u8) -> Result<(), String> {
    let blocks = vec![Block([byte; 4096]); count as usize];
    volume.write(address, &[&blocks], Stream::default()).map_err(|error| error.to_string())
}

fn read(volume: &impl Device, address: u64, count: u64) -> Vec<u8> {
    let mut blocks = Block::zeroed(count as usize);
    volume.read(address, &mut blocks).expect("blocks");
    blocks.iter().map(|block| block.0[0]).collect()
}

#[test]
fn a_volume_in_use_is_taken_over_on_request_alone() {
    let store = made();
    let first_cache = cache();
    let first = Volume::open(store.clone(), first_cache.clone(), &request("first", false));
    let first = first.expect("a released volume");
    write(&first, 0, 3, 1).expect("a write");
    first.flush().expect("the store has it");

    let refused = Volume::open(store.clone(), cache(), &request("second", false)).map(|_| ());
    assert!(matches!(refused, Err(OpenError::InUse { host }) if host == "first"));
    write(&first, 3, 1, 2)
        .and_then(|()| first.flush().map_err(|e| e.to_string()))
        .expect("undisturbed");

    let second =
        Volume::open(store.clone(), cache(), &request("second", true)).expect("a takeover");
    assert_eq!(read(&second, 0, 5), [1, 1, 1, 2, 0]);
    write(&first, 0, 1, 9).expect("nobody has said anything yet");
    let refused = first.flush().expect_err("the epoch is sealed").to_string();
    assert!(refused.contains("was taken over by the writer of epoch"), "{refused}");
    let refused = write(&first, 0, 1, 9).expect_err("the epoch is sealed");
    assert!(refused.contains("was taken over"), "{refused}");
    assert_eq!(read(&first, 0, 1), [9], "reads go on");
    assert_eq!(read(&second, 0, 1), [1]);

    // Its cache is neither used nor emptied.
    drop(first);
    for takes_over in [false, true] {
        let request = request("first", takes_over);
        let refused = Volume::open(store.clone(), first_cache.clone(), &request).map(|_| ());
        assert!(matches!(refused, Err(OpenError::StaleCache { host, .. }) if host == "second"));
    }
    second.close(1_000).expect("a close");
    let third = Volume::open(store, cache(), &request("third", false)).expect("released");
    assert_eq!(read(&third, 0, 5), [1, 1, 1, 2, 0]);
}

#[test]
fn a_cache_of_another_volume_is_refused_and_a_small_one() {
    let store = made();
    let small = Arc::new(RamDevice::new(SHAPE.volume_blocks));
    let refused = Volume::open(store.clone(), small, &request("host", false)).map(|_| ());
    assert!(matches!(refused, Err(OpenError::SmallCache { .. })));
    let (other, used) = (Arc::new(MemoryStore::default()), cache());
    create(other.clone(), used.clone(), ([8; 16], SHAPE), &request("host", false))
        .expect("another volume");
    let refused = Volume::open(store, used, &request("host", false)).map(|_| ());
    assert!(matches!(refused, Err(OpenError::ForeignCache)));
    let refused = create(other, cache(), ([9; 16], SHAPE), &request("host", false)).map(|_| ());
    assert!(matches!(refused, Err(OpenError::Exists)));
}

#[test]
fn what_nothing_needs_is_deleted_after_the_grace_time() {
    let store = made();
    let volume = Volume::open(store.clone(), cache(), &request("host", false)).expect("a volume");
    let count = |is: fn(&ObjectName) -> bool| store.names().iter().filter(|name| is(name)).count();
    // The log of the first epoch has a seal.
    let logs = || count(|name| matches!(name, ObjectName::Log(Epoch(2), _)));
    let data = || count(|name| matches!(name, ObjectName::Data(..)));
    for round in 1..=5 {
        write(&volume, 0, 32, round).expect("a region");
        write(&volume, 40, 2, round).expect("a piece");
        volume.flush().expect("a log object");
    }
    assert_eq!((logs(), data()), (5, 5));
    volume.join().expect("a manifest");
    volume.work(2_000).expect("nothing is old enough");
    volume.work(2_000 + GRACE - 1).expect("nothing is old enough");
    assert_eq!((logs(), data()), (5, 6), "the region with the piece was joined");
    volume.work(2_000 + GRACE).expect("deletions");
    assert_eq!((logs(), data()), (0, 2));
    assert_eq!(read(&volume, 0, 43), [vec![5; 32], vec![0; 8], vec![5; 2], vec![0]].concat());

    // Another writer goes on with what is left to be deleted.
    write(&volume, 0, 32, 6).expect("a region");
    volume.close(3_000).expect("a close");
    let volume = Volume::open(store.clone(), cache(), &request("host", false)).expect("a volume");
    assert_eq!(data(), 3);
    volume.work(4_000).expect("nothing is old enough");
    volume.work(4_000 + GRACE).expect("deletions");
    assert_eq!(data(), 2);
    assert_eq!(read(&volume, 30, 3), [6, 6, 0]);
}

/// A store whose requests take some time, so that those of two writers alternate.
struct SlowStore(Arc<MemoryStore>);

/// The store of one racer.
type Racer = Arc<EncryptedStore<SlowStore>>;

impl ObjectStore for SlowStore {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        thread::sleep(Duration::from_micros(100));
        self.0.put_all(objects)
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        thread::sleep(Duration::from_micros(50));
        self.0.get(name)
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        self.0.delete(name)
    }
}

/// Takes the volume over, and writes one range by one flush. Returns whether that was acknowledged.
fn race(store: Racer, who: u8, byte: u8, begin: &Barrier) -> bool {
    begin.wait();
    let Ok(volume) = ObjectDevice::open(store, cache(), &request("racer", true)) else {
        return false;
    };
    let (address, count) = (u64::from(who) * 40, 20);
    let blocks = vec![Block([byte; 4096]); count];
    volume.write(address, &[&blocks], Stream::default()).is_ok() && volume.flush().is_ok()
}

/// Two writers that take the volume over from each other: whatever either was told is durable is there, whole, and nothing else of
/// the loser.
#[test]
fn two_writers_at_once_lose_nothing_that_was_acknowledged() {
    race_for(100, None);
}

#[test]
fn two_writers_at_once_lose_nothing_of_an_encrypted_volume() {
    race_for(20, Some(&FileKey::new([7; 32])));
}

fn race_for(rounds: u8, key: Option<&FileKey>) {
    let objects = Arc::new(MemoryStore::default());
    let opened = || EncryptedStore::open(SlowStore(objects.clone()), key, Box::new(system_random));
    let opened = || -> Racer { Arc::new(opened().expect("the key of the volume")) };
    let volume = create(opened(), cache(), ([7; 16], SHAPE), &request("maker", false));
    volume.expect("a volume").close(1_000).expect("a close");
    let mut expected = [0; 2];
    let mut losers = 0;
    for round in 0..rounds {
        let (begin, bytes) = (Barrier::new(2), [2 + 2 * round, 3 + 2 * round]);
        let acknowledged = thread::scope(|scope| {
            let racers = [0, 1].map(|who| {
                let (store, begin) = (opened(), &begin);
                scope.spawn(move || race(store, who, bytes[usize::from(who)], begin))
            });
            racers.map(|racer| racer.join().expect("no panic"))
        });
        losers += acknowledged.iter().filter(|is_done| !**is_done).count();
        let last = ObjectDevice::open(opened(), cache(), &request("last", true));
        let last = last.expect("a takeover");
        for who in 0..2 {
            let found = read(&last, who as u64 * 40, 20);
            let allowed: &[u8] = match acknowledged[who] {
                true => &[bytes[who]],
                // The last log object may be there though nobody was told.
                false => &[expected[who], bytes[who]],
            };
            assert!(
                allowed.contains(&found[0]) && found.iter().all(|byte| *byte == found[0]),
                "{found:?}"
            );
            expected[who] = found[0];
        }
    }
    assert!(losers > 0, "the writers have not met");
    println!("{losers} of {} writers were refused", 2 * u32::from(rounds));
}
