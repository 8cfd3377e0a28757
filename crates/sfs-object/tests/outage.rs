//! A volume whose store does not answer for a while: who waits, who fails, and what is there afterwards.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sfs_device::{Block, Device, RamDevice, Stream};
use sfs_object::{
    Durability, Limits, MemoryStore, Nonce, Object, ObjectDevice, ObjectName, ObjectStore,
    OpenRequest, Outage, Part, PutReply, Shape, Stopped, create, with_reads_that_fail,
};

/// Ten regions.
const SHAPE: Shape = Shape { volume_blocks: 320, region_blocks: 32 };

/// Longest wait of what may fail.
const WAIT: Duration = Duration::from_millis(200);

/// A store in memory that does not answer while it is away.
#[derive(Default)]
struct Store {
    objects: MemoryStore,
    is_away: Mutex<bool>,
    changed: Condvar,
    /// Parts that were read, or asked for while it was away, as they are needed, and ahead.
    asked: [AtomicU32; 2],
}

impl Store {
    fn set_away(&self, is_away: bool) {
        *self.is_away.lock().expect("no panic") = is_away;
        self.changed.notify_all();
    }

    fn wait(&self, limit: Option<Duration>) -> Result<(), Stopped> {
        let away = self.is_away.lock().expect("no panic");
        let limit = limit.unwrap_or(Duration::from_secs(3600));
        let (away, _) =
            self.changed.wait_timeout_while(away, limit, |away| *away).expect("no panic");
        if *away { Err(Stopped) } else { Ok(()) }
    }
}

impl ObjectStore for Store {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        self.wait(None)?;
        self.objects.put_all(objects)
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        self.wait(None)?;
        self.objects.get(name)
    }

    fn get_parts(
        &self,
        parts: &[Part],
        wait: Option<Duration>,
    ) -> Result<Vec<Option<Vec<u8>>>, Stopped> {
        self.asked[0].fetch_add(parts.len() as u32, Ordering::SeqCst);
        self.wait(wait)?;
        self.objects.get_parts(parts, None)
    }

    /// A store that is away refuses.
    fn get_parts_once(&self, parts: &[Part]) -> Result<Vec<Option<Vec<u8>>>, Stopped> {
        self.asked[1].fetch_add(parts.len() as u32, Ordering::SeqCst);
        self.wait(Some(Duration::ZERO))?;
        self.objects.get_parts(parts, None)
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        self.wait(None)?;
        self.objects.delete(name)
    }
}

type Volume = ObjectDevice<Arc<Store>>;

fn request(durability: Durability, nonce: u8, cache_blocks: u64) -> OpenRequest {
    OpenRequest {
        nonce: Nonce([nonce; 16]),
        host: "host".to_owned(),
        now: 1_000,
        takes_over: false,
        durability,
        limits: Limits { upload_blocks: 32, ..Limits::of_mount(cache_blocks) },
    }
}

fn cache() -> Arc<RamDevice> {
    Arc::new(RamDevice::new(SHAPE.cache_blocks()))
}

/// Returns a store with a volume whose blocks are 1.
fn made() -> Arc<Store> {
    let store = Arc::new(Store::default());
    let request = request(Durability::Local, 1, 1 << 30);
    let volume = create(store.clone(), cache(), ([7; 16], SHAPE), &request).expect("a volume");
    write(&volume, 0, 320, 1).expect("a write");
    volume.close(1_000).expect("a close");
    store
}

fn write(volume: &Volume, address: u64, count: u64, byte: u8) -> Result<(), String> {
    let blocks = vec![Block([byte; 4096]); count as usize];
    volume.write(address, &[&blocks], Stream::default()).map_err(|error| error.to_string())
}

fn read(volume: &Volume, address: u64, count: u64) -> Result<Vec<u8>, sfs_device::DeviceError> {
    let mut blocks = Block::zeroed(count as usize);
    volume.read(address, &mut blocks)?;
    Ok(blocks.iter().map(|block| block.0[0]).collect())
}

/// A volume, and the thread that uploads for it.
struct Mounted {
    volume: Arc<Volume>,
    worker: Option<thread::JoinHandle<()>>,
}

impl Mounted {
    fn new(store: &Arc<Store>, request: &OpenRequest, outage: Outage) -> Self {
        let volume = Volume::open(store.clone(), cache(), request).expect("a released volume");
        let volume = Arc::new(volume);
        volume.set_outage(outage);
        volume.begin_worker();
        let of_worker = volume.clone();
        let worker = thread::spawn(move || {
            while of_worker.wait_for_demand(Duration::from_secs(3600)) {
                of_worker.upload_due(1_000).expect("nothing fails");
            }
        });
        Self { volume, worker: Some(worker) }
    }

    fn close(mut self) {
        self.volume.end_worker();
        self.worker.take().expect("a worker").join().expect("no panic");
        self.volume.close(1_000).expect("a close");
    }
}

/// Returns the content of a released volume, with a new cache.
fn content(store: &Arc<Store>) -> Vec<u8> {
    let request = request(Durability::Local, 9, 1 << 30);
    let volume = Volume::open(store.clone(), cache(), &request).expect("a released volume");
    read(&volume, 0, 320).expect("the store answers")
}

#[test]
fn a_flush_that_is_late_ends_nothing_and_a_later_one_makes_up_for_it() {
    let store = made();
    let request = request(Durability::Remote, 2, 1 << 30);
    let mounted = Mounted::new(&store, &request, Outage::Fail(WAIT));
    let volume = &mounted.volume;
    write(volume, 0, 4, 2).expect("a write");
    volume.flush().expect("the store answers");
    assert!(volume.order().expect("the cache"), "the store has everything");
    write(volume, 4, 4, 3).expect("the cache has the region");
    store.set_away(true);
    for round in 0..3 {
        let begun = Instant::now();
        let late = volume.flush().expect_err("the store is away");
        assert!(late.is_late(), "{late}");
        let waited = begun.elapsed();
        assert!(waited < WAIT * 3, "{waited:?}");
        // An outage that lasts is not waited for again.
        assert_eq!(waited >= WAIT, round == 0, "round {round}: {waited:?}");
        assert!(!volume.order().expect("the cache"), "the order needs no store");
        write(volume, 8 + round, 1, 4).expect("writes go on");
    }
    assert_eq!(volume.failure(), None);
    store.set_away(false);
    // The upload that was asked for first is still under way.
    while let Err(late) = volume.flush() {
        assert!(late.is_late(), "{late}");
        thread::yield_now();
    }
    assert!(volume.order().expect("the cache"));
    mounted.close();
    let expected = [vec![2; 4], vec![3; 4], vec![4; 3], vec![1; 309]].concat();
    assert_eq!(content(&store), expected);
}

#[test]
fn with_block_a_flush_and_a_read_wait_and_go_on() {
    let store = made();
    let request = request(Durability::Remote, 2, 1 << 30);
    let mounted = Mounted::new(&store, &request, Outage::Block);
    write(&mounted.volume, 0, 4, 2).expect("a write");
    store.set_away(true);
    thread::scope(|scope| {
        let volume = &mounted.volume;
        let flush = scope.spawn(|| volume.flush());
        let reading = scope.spawn(|| with_reads_that_fail(|| read(volume, 100, 1)));
        thread::sleep(WAIT * 2);
        assert!(!flush.is_finished() && !reading.is_finished());
        store.set_away(false);
        flush.join().expect("no panic").expect("the store answers again");
        assert_eq!(reading.join().expect("no panic").expect("the store answers again"), [1]);
    });
    mounted.close();
}

#[test]
fn reads_that_may_fail_do_and_others_wait() {
    let store = made();
    let request = request(Durability::Local, 2, 1 << 30);
    let mounted = Mounted::new(&store, &request, Outage::Fail(WAIT));
    let volume = &mounted.volume;
    assert_eq!(read(volume, 0, 1).expect("the store answers"), [1]);
    store.set_away(true);
    let late = with_reads_that_fail(|| read(volume, 200, 1)).expect_err("the store is away");
    assert!(late.is_late(), "{late}");
    assert_eq!(
        with_reads_that_fail(|| read(volume, 0, 1)).expect("the cache has it"),
        [1],
        "what the cache has is read"
    );
    thread::scope(|scope| {
        // A write needs the content around it, and is never late.
        let others = [
            scope.spawn(|| write(volume, 200, 1, 5)),
            scope.spawn(|| read(volume, 300, 1).map(drop).map_err(|error| error.to_string())),
        ];
        // Whatever goes on elsewhere meanwhile.
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    volume.discard(256, 32).expect("it needs no store");
                    assert_eq!(read(volume, 256, 1).expect("nothing is there"), [0]);
                }
            });
            thread::sleep(WAIT / 2);
            // It waits for the write, which fills the region, no longer than for the store.
            let begun = Instant::now();
            let late =
                with_reads_that_fail(|| read(volume, 210, 1)).expect_err("the store is away");
            assert!(late.is_late() && begun.elapsed() < 20 * WAIT, "{late}, {:?}", begun.elapsed());
            is_over.store(true, Ordering::Release);
            elsewhere.join().expect("it goes on");
        });
        thread::sleep(WAIT * 2);
        assert!(others.iter().all(|other| !other.is_finished()));
        store.set_away(false);
        for other in others {
            other.join().expect("no panic").expect("the store answers again");
        }
    });
    assert_eq!(with_reads_that_fail(|| read(volume, 200, 2)).expect("the store answers"), [5, 1]);
    mounted.close();
}

/// The cache has room for two regions of ten.
#[test]
fn writers_wait_for_room_until_an_unmount_is_announced() {
    let store = made();
    let request = request(Durability::Local, 2, 64);
    let mounted = Mounted::new(&store, &request, Outage::Fail(WAIT));
    let volume = &mounted.volume;
    let is_away = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for region in 0..10 {
                if region == 2 {
                    store.set_away(true);
                    is_away.store(true, Ordering::Release);
                }
                // Whole regions: nothing is read around them.
                let blocks = vec![Block([7; 4096]); 32];
                volume.discard(region * 32, 32).expect("a discard");
                volume
                    .write(region * 32, &[&blocks], Stream::default())
                    .expect("a writer waits, and never fails");
            }
        });
        while !is_away.load(Ordering::Acquire) {
            thread::yield_now();
        }
        thread::sleep(WAIT * 3);
        assert!(!writer.is_finished(), "the cache is full");
        volume.announce_end(Some(Duration::from_secs(60)), WAIT);
        writer.join().expect("no panic");
    });
    assert_eq!(volume.failure(), None, "an unmount that is refused does no harm");
    store.set_away(false);
    mounted.close();
    assert_eq!(content(&store), [7; 320]);
}

/// Regression: what was read ahead, and refused, was tried for ever, and whoever needed it waited for that.
#[test]
fn what_is_refused_ahead_is_left_to_those_who_need_it() {
    let store = made();
    let request = request(Durability::Local, 2, 1 << 30);
    let mounted = Mounted::new(&store, &request, Outage::Block);
    let volume = &mounted.volume;
    let asked = |ahead: usize| store.asked[ahead].load(Ordering::SeqCst);
    volume.begin_ahead();
    // Five regions in order.
    for region in 0..5 {
        with_reads_that_fail(|| read(volume, region * 32, 32)).expect("the store answers");
    }
    store.set_away(true);
    // It ends, and leaves what follows.
    assert!(volume.read_ahead());
    assert_eq!(asked(1), 1);
    let before = asked(0);
    thread::scope(|scope| {
        let readers = [5, 6].map(|region| scope.spawn(move || read(volume, region * 32, 32)));
        while asked(0) < before + 2 {
            thread::yield_now();
        }
        assert!(readers.iter().all(|reader| !reader.is_finished()));
        write(volume, 0, 1, 3).expect("the cache has it");
        store.set_away(false);
        for reader in readers {
            let read = reader.join().expect("no panic").expect("the store answers again");
            assert_eq!(read, [1; 32]);
        }
    });
    assert_eq!(asked(1), 1);
    volume.end_ahead();
    assert!(!volume.read_ahead());
    mounted.close();
}
