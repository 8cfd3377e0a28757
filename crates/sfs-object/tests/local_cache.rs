//! The local cache of an object volume: whose it is, what a close leaves, and what happens when it fails or is full.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sfs_device::{
    Block, Device, DeviceError, Event, FaultyDevice, Geometry, Keep, Operation, RamDevice,
    RecordingDevice, Stream,
};
use sfs_object::{
    Durability, Failure, Limits, MemoryStore, Nonce, Object, ObjectDevice, ObjectName, ObjectStore,
    OpenError, OpenRequest, PutReply, Shape, Stopped, create, read_state,
};

/// Ten regions.
const SHAPE: Shape = Shape { volume_blocks: 320, region_blocks: 32 };

/// First block of the map of regions that are ahead.
const AHEAD_MAP: u64 = 2;

type Hook = Box<dyn FnMut() + Send>;

/// A store in memory, and something that happens at each PUT.
#[derive(Default)]
struct Store {
    objects: MemoryStore,
    at_put: Mutex<Option<Hook>>,
    refuses_deletes: AtomicBool,
}

impl ObjectStore for Store {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        let hook = self.at_put.lock().expect("no panic").take();
        if let Some(mut hook) = hook {
            hook();
            *self.at_put.lock().expect("no panic") = Some(hook);
        }
        self.objects.put_all(objects)
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        self.objects.get(name)
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        if self.refuses_deletes.load(Ordering::Relaxed) {
            return Err(Stopped);
        }
        self.objects.delete(name)
    }
}

type Volume = ObjectDevice<Arc<Store>>;

/// Returns a request of a writer with a new nonce.
fn request(cache_blocks: u64) -> OpenRequest {
    static NONCE: AtomicU64 = AtomicU64::new(1);
    let nonce = u128::from(NONCE.fetch_add(1, Ordering::Relaxed));
    OpenRequest {
        nonce: Nonce(nonce.to_le_bytes()),
        host: "host".to_owned(),
        now: 1_000,
        takes_over: false,
        durability: Durability::Local,
        limits: Limits { upload_blocks: 32, ..Limits::of_mount(cache_blocks) },
    }
}

const LARGE: u64 = 1 << 30;

fn cache() -> Arc<RamDevice> {
    Arc::new(RamDevice::new(SHAPE.cache_blocks()))
}

fn open(store: &Arc<Store>, cache: Arc<dyn Device>, blocks: u64) -> Result<Volume, OpenError> {
    Volume::open(store.clone(), cache, &request(blocks))
}

/// Makes a volume in whose regions each block has the number of the region plus 1, but the last region is zero. It is released.
fn made() -> Arc<Store> {
    let store = Arc::new(Store::default());
    let volume = create(store.clone(), cache(), ([7; 16], SHAPE), &request(LARGE));
    let volume = volume.expect("a volume");
    (0..9).for_each(|no| write(&volume, no * 32, 32, no as u8 + 1).expect("a region"));
    volume.close(1_000).expect("a close");
    store
}

fn write(volume: &Volume, address: u64, count: u64, byte: u8) -> Result<(), String> {
    let blocks = vec![Block([byte; 4096]); count as usize];
    volume.write(address, &[&blocks], Stream::default()).map_err(|error| error.to_string())
}

fn read(volume: &Volume, address: u64, count: u64) -> Result<Vec<u8>, String> {
    let mut blocks = Block::zeroed(count as usize);
    volume.read(address, &mut blocks).map_err(|error| error.to_string())?;
    Ok(blocks.iter().map(|block| block.0[0]).collect())
}

/// Runs `job` in a thread, and returns whether it ends while the caller waits.
fn ends(job: impl FnOnce() + Send + 'static) -> bool {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        job();
        let _ = sender.send(());
    });
    receiver.recv_timeout(Duration::from_secs(10)).is_ok()
}

#[test]
fn a_closed_volume_is_opened_again_with_what_the_cache_holds() {
    let (store, local) = (made(), Arc::new(RecordingDevice::new(cache_of(), Keep::Contents)));
    let volume = open(&store, local.clone(), 4 * 32).expect("a released volume");
    write(&volume, 0, 1, 20).expect("a write");
    assert_eq!(read(&volume, 32, 2), Ok(vec![2; 2]));
    volume.close(1_000).expect("a close");
    local.take_events();
    // The cache holds this; anything else would have to come from the store, and others would be evicted for it.
    assert_eq!(read(&volume, 0, 2), Ok(vec![20, 1]));
    for region in 2..10 {
        let refused = read(&volume, region * 32, 32).expect_err("the volume is closed");
        assert!(refused.contains("the volume is closed"), "{refused}");
    }
    for refused in [
        write(&volume, 0, 1, 9),
        volume.discard(0, 32).map_err(|error| error.to_string()),
        volume.close(1_000).map_err(|error| error.to_string()),
    ] {
        let refused = refused.expect_err("the volume is closed");
        assert!(refused.contains("the volume is closed"), "{refused}");
    }
    drop(volume);
    assert_eq!(local.take_events(), [], "the cache does not change after a close");

    let volume = open(&store, local, 4 * 32).expect("a released volume");
    let pages = [read(&volume, 0, 2), read(&volume, 32, 2), read(&volume, 319, 1)];
    assert_eq!(pages, [Ok(vec![20, 1]), Ok(vec![2; 2]), Ok(vec![0])]);
}

/// Regression: a bucket that lets nobody delete ended all uploads of a mount, while fsync(2) went on to succeed.
#[test]
fn what_a_store_does_not_delete_keeps_nothing_from_being_uploaded() {
    let store = made();
    let volume = open(&store, cache(), LARGE).expect("a released volume");
    let grace = request(LARGE).limits.grace_secs;
    store.refuses_deletes.store(true, Ordering::Relaxed);
    write(&volume, 0, 32, 20).expect("a write");
    volume.join().expect("a manifest");
    volume.work(2_000).expect("the grace time begins");
    let before = store.objects.names().len();
    write(&volume, 32, 1, 21).expect("a write");
    volume.work(2_000 + grace).expect("deletions can wait");
    write(&volume, 33, 1, 22).expect("a write");
    volume.work(2_001 + grace).expect("deletions can wait");
    assert_eq!(store.objects.names().len(), before + 2, "both writes are uploaded");
    store.refuses_deletes.store(false, Ordering::Relaxed);
    volume.work(1_999 + 2 * grace).expect("another grace time has not passed");
    assert_eq!(store.objects.names().len(), before + 2);
    volume.work(2_000 + 2 * grace).expect("deletions");
    assert!(store.objects.names().len() < before + 2, "{:?}", store.objects.names());
    volume.close(9_000).expect("a close");
}

/// A join at the end uploads whole regions once more.
#[test]
fn a_close_leaves_few_pieces_in_the_log_and_joins_many() {
    for (regions, is_joined) in [(2, false), (8, false), (9, true)] {
        let (store, local) = (made(), cache());
        let before = data_objects(&store);
        let volume = open(&store, local.clone(), LARGE).expect("a released volume");
        (0..regions).for_each(|no| write(&volume, no * 32, 1, 20 + no as u8).expect("a write"));
        volume.upload().expect("a log object");
        (0..regions).for_each(|no| write(&volume, no * 32 + 1, 1, 40 + no as u8).expect("a write"));
        volume.close(1_000).expect("a close");
        let joined = data_objects(&store) - before;
        assert_eq!(joined, if is_joined { regions as usize } else { 0 });
        assert!(read_state(&*store).expect("a state").is_released);
        drop(volume);
        // With this cache, with another one, and with another one once more: nothing was joined, nor deleted.
        let caches = [local as Arc<dyn Device>, cache(), cache()];
        for local in caches {
            let volume = open(&store, local, LARGE).expect("a released volume");
            for no in 0..regions {
                let expected = vec![20 + no as u8, 40 + no as u8, no as u8 + 1];
                assert_eq!(read(&volume, no * 32, 3), Ok(expected));
            }
            volume.collect(|| 5_000);
            volume.collect(|| 9_000);
            volume.close(9_000).expect("a close");
        }
    }
}

/// Uses that are short do not make the next mount read ever more.
#[test]
fn log_objects_of_many_uses_are_joined() {
    let store = made();
    let before = data_objects(&store);
    for no in 0..100 {
        let volume = open(&store, cache(), LARGE).expect("a released volume");
        write(&volume, 0, 1, no).expect("a write");
        volume.close(1_000).expect("a close");
    }
    // Once for about 32 log objects.
    assert_eq!(data_objects(&store) - before, 3);
}

/// Nor does it read many bytes: those of earlier uses count.
#[test]
fn log_objects_of_many_bytes_are_joined() {
    let store = made();
    let before = data_objects(&store);
    let mut request = request(LARGE);
    request.limits.left_blocks = 40;
    for no in 0..9 {
        let volume = Volume::open(store.clone(), cache(), &request).expect("a released volume");
        write(&volume, 0, 10, no).expect("a write");
        volume.close(1_000).expect("a close");
        // The fourth use would leave forty.
        assert_eq!(data_objects(&store) - before, (no as usize + 1) / 4, "use {no}");
    }
}

/// Returns the number of data objects.
fn data_objects(store: &Store) -> usize {
    let names = store.objects.names().into_iter();
    names.filter(|name| matches!(name, ObjectName::Data(..))).count()
}

#[test]
fn nothing_is_written_once_a_close_has_begun() {
    let store = made();
    let volume = Arc::new(open(&store, cache(), LARGE).expect("a released volume"));
    write(&volume, 0, 1, 20).expect("a write");
    let (late, outcomes) = (Arc::downgrade(&volume), Arc::new(Mutex::new(Vec::new())));
    let of_hook = outcomes.clone();
    *store.at_put.lock().expect("no panic") = Some(Box::new(move || {
        if let Some(volume) = late.upgrade() {
            of_hook.lock().expect("no panic").push(write(&volume, 1, 1, 21).is_ok());
        }
    }));
    volume.close(1_000).expect("a close");
    *store.at_put.lock().expect("no panic") = None;
    let outcomes = outcomes.lock().expect("no panic").clone();
    assert!(!outcomes.is_empty() && !outcomes.contains(&true), "{outcomes:?}");
}

#[test]
fn a_close_releases_the_volume_though_the_cache_fails() {
    for failing in 1..=5 {
        let (store, local) = (made(), Arc::new(FaultyDevice::new(cache_of())));
        let volume = open(&store, local.clone(), LARGE).expect("a released volume");
        write(&volume, 0, 1, 20).expect("a write");
        // The number of the manifest, the map of regions ahead, the map of present pages, and the header.
        local.fail_nth(Operation::Write, failing);
        let is_closed = volume.close(1_000).is_ok();
        assert_eq!(is_closed, failing > 4, "write {failing}");
        assert!(write(&volume, 0, 1, 21).is_err());
        local.heal();
        assert!(read_state(&*store).expect("a state").is_released);
        drop(volume);
        let volume = open(&store, local, LARGE).expect("a released volume");
        assert_eq!(read(&volume, 0, 33), Ok([vec![20], vec![1; 31], vec![2]].concat()));
    }
}

#[test]
fn a_volume_whose_close_fails_is_not_released() {
    let (store, local) = (made(), cache());
    let volume = open(&store, local.clone(), LARGE).expect("a released volume");
    write(&volume, 0, 1, 20).expect("a write");
    // Another writer has the volume meanwhile.
    let other = OpenRequest { takes_over: true, ..request(LARGE) };
    let other = Volume::open(store.clone(), cache(), &other).expect("a takeover");
    let refused = volume.close(1_000).expect_err("the epoch is sealed");
    assert!(matches!(refused, Failure::Object(_)), "{refused}");
    assert_eq!(volume.failure(), Some(refused));
    assert_eq!(read(&volume, 64, 1), Ok(vec![3]), "reads go on");
    assert!(!read_state(&*store).expect("a state").is_released);
    drop(other);
}

#[test]
fn a_cache_of_another_volume_is_neither_used_nor_emptied() {
    let (store, local) = (Arc::new(Store::default()), cache());
    let volume = create(store.clone(), local.clone(), ([8; 16], SHAPE), &request(LARGE));
    let volume = volume.expect("a volume");
    write(&volume, 0, 3, 9).expect("a write");
    volume.flush().expect("the cache has it");
    drop(volume);

    let smaller = Shape { volume_blocks: 100, region_blocks: 16 };
    let others = [SHAPE, smaller].map(|shape| {
        let store = Arc::new(Store::default());
        let volume = create(store.clone(), cache(), ([9; 16], shape), &request(LARGE));
        volume.expect("a volume").close(1_000).expect("a close");
        store
    });
    for other in &others {
        let refused = open(other, local.clone(), LARGE).map(|_| ());
        assert!(matches!(refused, Err(OpenError::ForeignCache)));
    }
    for shape in [SHAPE, smaller] {
        let empty = Arc::new(Store::default());
        let refused = create(empty.clone(), local.clone(), ([9; 16], shape), &request(LARGE));
        assert!(matches!(refused.map(|_| ()), Err(OpenError::UsedCache)));
        assert_eq!(empty.objects.names(), [], "the store is not used either");
    }
    let volume = open(&store, local, LARGE).expect("the last writer");
    assert_eq!(read(&volume, 0, 4), Ok(vec![9, 9, 9, 0]));
}

#[test]
fn a_creation_that_was_cut_short_is_repeated_with_its_cache() {
    struct Full(Store);
    impl ObjectStore for Full {
        fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
            match objects[0].name {
                ObjectName::Manifest(..) => Err(Stopped),
                _ => self.0.put_all(objects),
            }
        }
        fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
            self.0.get(name)
        }
        fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
            self.0.delete(name)
        }
    }
    let (store, local) = (Arc::new(Full(Store::default())), cache());
    let failed = create(store.clone(), local.clone(), ([8; 16], SHAPE), &request(LARGE));
    assert!(matches!(failed.map(|_| ()), Err(OpenError::Failure(Failure::Object(_)))));
    let store = Arc::into_inner(store).expect("no other owner").0;
    create(Arc::new(store), local, ([9; 16], SHAPE), &request(LARGE)).expect("a volume");
}

#[test]
fn a_volume_of_an_impossible_shape_is_not_made() {
    for (volume_blocks, region_blocks) in
        [(0, 32), (1 << 40, 32), (320, 0), (320, 24), (320, 2048), (u64::MAX, 16)]
    {
        let (store, shape) = (Arc::new(Store::default()), Shape { volume_blocks, region_blocks });
        let refused = create(store.clone(), cache(), ([8; 16], shape), &request(LARGE));
        assert!(matches!(refused.map(|_| ()), Err(OpenError::Shape(of)) if of == shape));
        assert_eq!(store.objects.names(), []);
    }
}

/// The map of regions ahead is not written when the volume needs it, and may have been: the region is neither written nor evicted.
#[test]
fn a_region_stays_if_the_cache_does_not_take_its_bit() {
    let (store, local) = (made(), Arc::new(FaultyDevice::new(cache_of())));
    let volume = open(&store, local.clone(), 2 * 32).expect("a released volume");
    // The first flush makes the content durable, the second one the bit.
    local.fail_nth(Operation::Flush, 2);
    write(&volume, 0, 1, 20).expect_err("a flush has failed");
    assert_stays(&store, volume, local, 1);
}

#[test]
fn a_region_stays_if_its_bit_is_not_cleared() {
    let (store, local) = (made(), Arc::new(FaultyDevice::new(cache_of())));
    let volume = open(&store, local.clone(), 2 * 32).expect("a released volume");
    write(&volume, 0, 1, 20).expect("a write");
    local.fail_nth(Operation::Write, 1);
    volume.join().expect_err("the map is not written");
    assert_stays(&store, volume, local, 20);
}

/// Asserts that nothing is written after an error of the cache, and that the first block is there in another life.
fn assert_stays(
    store: &Arc<Store>,
    volume: Volume,
    local: Arc<FaultyDevice<RamDevice>>,
    first: u8,
) {
    local.heal();
    for (address, job) in [(0, "the same region"), (96, "another region")] {
        let refused = write(&volume, address, 1, 30).expect_err(job);
        assert!(refused.contains("local cache"), "{refused}");
    }
    let failure = volume.failure().expect("a reason");
    assert_eq!(volume.upload(), Err(failure));
    for region in 1..9 {
        let expected = vec![region as u8 + 1; 32];
        assert_eq!(read(&volume, region * 32, 32), Ok(expected), "reads go on");
    }
    drop(volume);
    let volume = open(store, local, 2 * 32).expect("the last writer");
    assert_eq!(read(&volume, 0, 33), Ok([vec![first], vec![1; 31], vec![2]].concat()));
}

/// The power fails when the bit of a region is durable and nothing else that was written since the last flush.
#[test]
fn pieces_of_log_objects_are_durable_before_their_region_is_ahead() {
    let (store, local) = (made(), cache());
    let volume = open(&store, local, LARGE).expect("a released volume");
    write(&volume, 300, 2, 20).expect("a write");
    volume.upload().expect("a log object");
    drop(volume);

    let (base, local) = (cache(), Arc::new(RecordingDevice::new(cache_of(), Keep::Contents)));
    let second = OpenRequest { takes_over: true, ..request(LARGE) };
    let volume = Volume::open(store.clone(), local.clone(), &second).expect("a takeover");
    write(&volume, 310, 1, 30).expect("a write");
    drop(volume);
    let events = local.take_events();
    let is_bit =
        |event: &Event| matches!(event, Event::Write { range, .. } if range.address == AHEAD_MAP);
    let bit = events.iter().rposition(is_bit).expect("the bit");
    let is_flush = |event: &Event| *event == Event::Flush;
    let flush = events[..bit].iter().rposition(is_flush).expect("a flush");
    events[..flush].iter().chain([&events[bit]]).for_each(|event| event.apply(&base));
    let volume = open(&store, base, LARGE).expect("the last writer");
    assert_eq!(read(&volume, 299, 4), Ok(vec![0, 20, 20, 0]));
}

/// A cache that cannot discard, and something that happens at each request.
struct Dull {
    inner: RamDevice,
    at_request: Mutex<Option<Hook>>,
}

impl Dull {
    /// Returns a cache that is full of something.
    fn full() -> Arc<Self> {
        let inner = cache_of();
        let blocks = vec![Block([0xee; 4096]); SHAPE.cache_blocks() as usize];
        inner.write(0, &[&blocks], Stream::default()).expect("a write");
        Arc::new(Self { inner, at_request: Mutex::default() })
    }

    fn happen(&self) {
        let hook = self.at_request.lock().expect("no panic").take();
        if let Some(mut hook) = hook {
            hook();
            *self.at_request.lock().expect("no panic") = Some(hook);
        }
    }
}

impl Device for Dull {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.happen();
        self.inner.read(address, buffer)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.happen();
        self.inner.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.happen();
        self.inner.flush()
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        self.happen();
        Ok(())
    }
}

#[test]
fn a_cache_that_cannot_discard_shows_no_old_content() {
    let (store, local) = (made(), Dull::full());
    let volume = open(&store, local.clone(), LARGE).expect("a released volume");
    assert_eq!(read(&volume, 288, 16), Ok(vec![0; 16]));
    write(&volume, 310, 1, 30).expect("a write");
    let expected = [vec![9], vec![0; 22], vec![30], vec![0; 9]].concat();
    assert_eq!(read(&volume, 287, 33), Ok(expected.clone()));
    volume.flush().expect("the cache has it");
    drop(volume);
    let volume = open(&store, local, LARGE).expect("the last writer");
    assert_eq!(read(&volume, 287, 33), Ok(expected));
}

#[test]
fn reads_do_not_wait_for_uploads() {
    let store = made();
    let volume = Arc::new(open(&store, cache(), 2 * 32).expect("a released volume"));
    write(&volume, 0, 64, 20).expect("a write that fills the cache");
    let (reader, outcomes) = (Arc::downgrade(&volume), Arc::new(Mutex::new(Vec::new())));
    let of_hook = outcomes.clone();
    *store.at_put.lock().expect("no panic") = Some(Box::new(move || {
        let Some(volume) = reader.upgrade() else { return };
        let ends = ends(move || assert_eq!(read(&volume, 256, 32), Ok(vec![9; 32])));
        of_hook.lock().expect("no panic").push(ends);
    }));
    volume.upload().expect("an upload");
    *store.at_put.lock().expect("no panic") = None;
    let outcomes = outcomes.lock().expect("no panic").clone();
    assert!(!outcomes.is_empty() && !outcomes.contains(&false), "{outcomes:?}");
}

/// A cache that reads have filled beyond its limit is emptied by the next call of `work`.
#[test]
fn work_joins_when_the_cache_is_full() {
    let (store, local) = (made(), Arc::new(RecordingDevice::new(cache_of(), Keep::Requests)));
    let volume = open(&store, local.clone(), 2 * 32).expect("a released volume");
    write(&volume, 0, 64, 20).expect("a write that fills the cache");
    volume.upload().expect("an upload");
    assert_eq!(read(&volume, 256, 32), Ok(vec![9; 32]));
    let discards = || local.counts().discarded_blocks;
    let before = discards();
    volume.work(2_000).expect("a join");
    assert!(discards() > before, "nothing was evicted");
    assert_eq!(read(&volume, 0, 65), Ok([vec![20; 64], vec![3]].concat()));
}

/// A thread that asks for the state of the volume does not wait for the local disk: not in an upload, a write to what is being uploaded, an
/// eviction or a discard.
#[test]
fn the_state_is_not_locked_during_requests_to_the_cache() {
    let (store, local) = (made(), Dull::full());
    let volume = Arc::new(open(&store, local.clone(), 4 * 32).expect("a released volume"));
    let (asked, blocked) = (Arc::downgrade(&volume), Arc::new(Mutex::new(0)));
    let of_hook = blocked.clone();
    *local.at_request.lock().expect("no panic") = Some(Box::new(move || {
        let Some(volume) = asked.upgrade() else { return };
        let mut blocked = of_hook.lock().expect("no panic");
        if *blocked == 0 && !ends(move || assert_eq!(volume.failure(), None)) {
            *blocked += 1;
        }
    }));
    let during = |step: &str, job: &dyn Fn()| {
        job();
        assert_eq!(std::mem::take(&mut *blocked.lock().expect("no panic")), 0, "{step}");
    };
    write(&volume, 0, 96, 20).expect("a write");
    during("upload", &|| volume.upload().expect("an upload"));
    let writer = Arc::downgrade(&volume);
    write(&volume, 0, 96, 21).expect("a write");
    *store.at_put.lock().expect("no panic") = Some(Box::new(move || {
        let Some(volume) = writer.upgrade() else { return };
        write(&volume, 64, 2, 22).expect("a write");
    }));
    during("upload and write", &|| volume.upload().expect("an upload"));
    *store.at_put.lock().expect("no panic") = None;
    volume.join().expect("a join");
    during("eviction", &|| {
        (3..9).for_each(|no| assert_eq!(read(&volume, no * 32, 32), Ok(vec![no as u8 + 1; 32])));
    });
    during("discard", &|| volume.discard(256, 32).expect("a discard"));
    assert_eq!(read(&volume, 63, 4), Ok(vec![21, 22, 22, 21]));
}

fn cache_of() -> RamDevice {
    RamDevice::new(SHAPE.cache_blocks())
}
