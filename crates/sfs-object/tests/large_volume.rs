//! A volume of 1 TiB, whose regions are not there: how many round trips a mount needs, what it reads, and how long it takes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sfs_device::{Block, Device, FileDevice, Stream};
use sfs_object::{
    Durability, Limits, MemoryStore, Nonce, Object, ObjectDevice, ObjectName, ObjectStore,
    OpenRequest, PageCache, Part, PutReply, Shape, Snapshot, Stopped, create,
};

/// 1 TiB in regions of 4 MiB.
const SHAPE: Shape = Shape { volume_blocks: 1 << 28, region_blocks: 1 << 10 };

/// A store that counts round trips: requests that are sent at once are one.
#[derive(Clone, Default)]
struct Counted {
    store: Arc<MemoryStore>,
    trips: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl Counted {
    fn trip(&self) {
        self.trips.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self, parts: Vec<Option<Vec<u8>>>) -> Vec<Option<Vec<u8>>> {
        let bytes: usize = parts.iter().flatten().map(Vec::len).sum();
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        parts
    }
}

impl ObjectStore for Counted {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        self.trip();
        // Nobody reads the regions of this test.
        let kept = |object: &Object| match object.name {
            ObjectName::Data(..) => Object { bytes: Vec::new(), ..object.clone() },
            _ => object.clone(),
        };
        self.store.put_all(&objects.iter().map(kept).collect::<Vec<_>>())
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        self.get_all(&[name]).map(|mut read| read.remove(0))
    }

    fn get_all(&self, names: &[ObjectName]) -> Result<Vec<Option<Vec<u8>>>, Stopped> {
        self.trip();
        self.store.get_all(names).map(|read| self.read(read))
    }

    fn get_parts(
        &self,
        parts: &[Part],
        wait: Option<Duration>,
    ) -> Result<Vec<Option<Vec<u8>>>, Stopped> {
        self.trip();
        self.store.get_parts(parts, wait).map(|read| self.read(read))
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        self.trip();
        self.store.delete(name)
    }
}

fn request(no: u8) -> OpenRequest {
    OpenRequest {
        nonce: Nonce([no; 16]),
        host: "host".to_owned(),
        now: 1_000,
        takes_over: false,
        durability: Durability::Remote,
        limits: Limits::of_mount(1 << 30),
    }
}

fn cache_in(dir: &Path, no: u8) -> Arc<dyn Device> {
    let length = SHAPE.cache_blocks() * 4096;
    Arc::new(FileDevice::create(&dir.join(no.to_string()), length).expect("a sparse file"))
}

#[test]
fn a_mount_of_a_tebibyte_needs_few_round_trips() {
    let dir = tempfile::tempdir().expect("a directory");
    let cache = |no| cache_in(dir.path(), no);
    let store = Counted::default();
    let volume = create(store.clone(), cache(0), ([7; 16], SHAPE), &request(0)).expect("a volume");
    // More manifests than are found by one request, and regions in no order.
    let block = [Block([1; 4096])];
    for no in 0..60u64 {
        let region = no * 2_654_435_761 % (SHAPE.volume_blocks / SHAPE.region_blocks);
        volume.write(region * SHAPE.region_blocks, &[&block], Stream::default()).expect("a write");
        volume.join().expect("a manifest");
    }
    volume.close(1_000).expect("a close");
    for no in 1..=2u8 {
        let [trips, bytes] = [&store.trips, &store.bytes];
        trips.store(0, Ordering::Relaxed);
        bytes.store(0, Ordering::Relaxed);
        let (begun, cache) = (Instant::now(), cache(no));
        let opened = ObjectDevice::open(store.clone(), cache, &request(no));
        let (opened, time) = (opened.expect("a released volume"), begun.elapsed());
        let [trips, bytes] = [trips, bytes].map(|count| count.load(Ordering::Relaxed));
        println!("a mount: {trips} round trips, {bytes} bytes, {time:?}");
        assert!(trips <= 45, "{trips} round trips");
        // Manifests are read when they are the newest, and only then.
        assert!(bytes < 100_000, "{bytes} bytes");
        // A request takes 30 ms, and a mount may take as long as ten of them and two seconds.
        let with_trips = time + Duration::from_millis(30 * trips);
        assert!(with_trips < Duration::from_millis(2_300), "{with_trips:?}");
        opened.close(1_000).expect("a close");
    }
}

/// Log objects are read several at once, also those of earlier epochs.
#[test]
fn a_long_log_is_read_in_few_round_trips() {
    let dir = tempfile::tempdir().expect("a directory");
    let cache = |no| cache_in(dir.path(), no);
    let store = Counted::default();
    let first = create(store.clone(), cache(0), ([7; 16], SHAPE), &request(0)).expect("a volume");
    append(&first);
    let takeover = OpenRequest { takes_over: true, ..request(1) };
    store.trips.store(0, Ordering::Relaxed);
    let second = ObjectDevice::open(store.clone(), cache(1), &takeover).expect("a takeover");
    let taken_over = store.trips.swap(0, Ordering::Relaxed);
    append(&second);
    store.trips.store(0, Ordering::Relaxed);
    let pages = Arc::new(PageCache::new(1 << 20));
    let snapshot = Snapshot::open(store.clone(), pages).expect("a state");
    let opened = store.trips.swap(0, Ordering::Relaxed);
    assert!(snapshot.newer().expect("a store").is_none(), "nothing is newer");
    let looked = store.trips.swap(0, Ordering::Relaxed);
    println!("a takeover: {taken_over} round trips, a reader: {opened}, a look: {looked}");
    assert!(taken_over < LOG_OBJECTS && opened < LOG_OBJECTS / 2, "{taken_over}, {opened}");
    assert!(looked <= 5, "{looked}");
}

const LOG_OBJECTS: u64 = 80;

fn append(volume: &ObjectDevice<Counted>) {
    for no in 0..LOG_OBJECTS {
        volume.write(no, &[&[Block([no as u8; 4096])]], Stream::default()).expect("a write");
        volume.upload().expect("a log object");
    }
}
