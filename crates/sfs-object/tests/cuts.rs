//! Cuts that follow each other: which objects are sent at once, and in which order.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sfs_device::{Block, Device, DeviceError, Geometry, Operation, RamDevice, Stream};
use sfs_object::{
    Durability, Limits, MemoryStore, Nonce, Object, ObjectDevice, ObjectName, ObjectStore,
    OpenRequest, PageCache, PutReply, Shape, Snapshot, Stopped, create,
};

/// Ten regions.
const SHAPE: Shape = Shape { volume_blocks: 320, region_blocks: 32 };

type Hook = Box<dyn FnMut() + Send>;
type Volume = ObjectDevice<Arc<Store>>;

/// A store in memory that notes what is sent at once, and something that happens at each PUT.
#[derive(Default)]
struct Store {
    objects: MemoryStore,
    sent: Mutex<Vec<Vec<ObjectName>>>,
    at_put: Mutex<Option<Hook>>,
}

impl ObjectStore for Store {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        let names = objects.iter().map(|object| object.name).collect();
        self.sent.lock().expect("no panic").push(names);
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
        self.objects.delete(name)
    }
}

fn request(nonce: u8, durability: Durability, early_blocks: u64) -> OpenRequest {
    let limits = Limits {
        early_blocks_first: 64,
        early_blocks,
        upload_blocks: 1 << 20,
        ..Limits::of_mount(1 << 30)
    };
    OpenRequest {
        nonce: Nonce([nonce; 16]),
        host: "host".to_owned(),
        now: 1_000,
        takes_over: false,
        durability,
        limits,
    }
}

fn cache() -> Arc<RamDevice> {
    Arc::new(RamDevice::new(SHAPE.cache_blocks()))
}

/// Writes nearly two regions, and two others at each of the next PUTs, `rounds` times in all; the last time a little of as many as `last` says, unless that
/// is 0. Returns what `upload` sends at once, and numbers from 1: `d` is a data object, and `l` a log object.
fn sent_while_written(
    (durability, early_blocks): (Durability, u64),
    rounds: u64,
    last: u64,
    upload: impl FnOnce(&Arc<Volume>),
) -> Vec<String> {
    let store = Arc::new(Store::default());
    let request = request(1, durability, early_blocks);
    let volume = create(store.clone(), cache(), ([7; 16], SHAPE), &request).expect("a volume");
    let volume = Arc::new(volume);
    let put = move |volume: &Volume, round: u64| {
        let write = |address, count| {
            let blocks = vec![Block([round as u8 + 1; 4096]); count];
            volume.write(address, &[&blocks], Stream::default()).expect("a write");
        };
        match last {
            1.. if round + 1 == rounds => {
                write(round * 64, 4);
                (1..last).for_each(|no| write((round * 64 + no * 32 + 16) % 320, 4));
            }
            // The first is not much.
            _ => write(round * 64, if round == 0 { 63 } else { 64 }),
        }
    };
    put(&volume, 0);
    let (of_hook, mut round) = (Arc::downgrade(&volume), 1);
    *store.at_put.lock().expect("no panic") = Some(Box::new(move || {
        if let Some(volume) = of_hook.upgrade().filter(|_| round < rounds) {
            put(&volume, round);
            round += 1;
        }
    }));
    store.sent.lock().expect("no panic").clear();
    upload(&volume);
    let sent = std::mem::take(&mut *store.sent.lock().expect("no panic"));
    volume.close(1_000).expect("a close");
    drop(volume);
    *store.at_put.lock().expect("no panic") = None;
    let volume = Volume::open(store, cache(), &self::request(2, durability, early_blocks))
        .expect("released");
    let mut found = Block::zeroed(1);
    for written in 0..rounds {
        volume.read(written * 64 + 3, &mut found).expect("a read");
        assert_eq!(found[0].0[0], written as u8 + 1, "round {written}");
    }
    let shown = |name: &ObjectName| match name {
        ObjectName::Data(_, number) => format!("d{number}"),
        ObjectName::Log(_, number) => format!("l{number}"),
        other => other.to_string(),
    };
    sent.iter().map(|at_once| at_once.iter().map(shown).collect::<Vec<_>>().join(" ")).collect()
}

/// Nothing waits for a log object but those who have asked for it.
#[test]
fn regions_of_the_next_cut_are_sent_with_the_log_object_of_the_one_before() {
    let sent = sent_while_written((Durability::Local, 64), 4, 0, |volume| {
        volume.work(1_000).expect("an upload");
    });
    assert_eq!(sent, ["d1 d2", "l1 d3 d4", "l2 d5 d6", "l3 d7 d8", "l4"]);
}

/// Log objects of a long stream are few.
#[test]
fn a_cut_has_twice_as_much_as_the_one_before_up_to_a_limit() {
    let sent = sent_while_written((Durability::Local, 128), 5, 0, |volume| {
        volume.work(1_000).expect("an upload");
    });
    assert_eq!(sent, ["d1 d2", "l1 d3 d4", "l2", "d5 d6 d7 d8", "l3"]);
}

/// A thread that waits for an upload does not wait for what others have written since.
#[test]
fn a_cut_that_a_thread_waits_for_has_its_log_object_first() {
    let sent = sent_while_written((Durability::Remote, 64), 3, 0, |volume| {
        volume.begin_worker();
        thread::scope(|scope| {
            let flush = scope.spawn(|| volume.flush());
            volume.wait_for_demand(Duration::from_secs(3600));
            while !flush.is_finished() {
                volume.upload_due(1_000).expect("an upload");
            }
        });
        volume.end_worker();
    });
    assert_eq!(sent[..2], ["d1 d2", "l1"], "{sent:?}");
}

/// A little that is left when the use ends is appended, as it would be by the close. Pieces that the close joins are not appended before.
#[test]
fn what_a_close_would_append_follows_what_is_under_way() {
    for (last, expected) in [(3, &["d1 d2", "l1", "l2"][..]), (9, &["d1 d2", "l1"])] {
        let sent = sent_while_written((Durability::Local, 64), 2, last, |volume| {
            volume.begin_worker();
            volume.end_worker();
            volume.upload_due(1_000).expect("an upload");
        });
        assert_eq!(sent, expected);
    }
}

/// A local cache whose reads do something before, or fail.
struct DyingCache {
    device: RamDevice,
    /// Returns whether the read succeeds.
    at_read: Mutex<Option<Box<dyn FnMut() -> bool + Send>>>,
}

impl Device for DyingCache {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        let hook = self.at_read.lock().expect("no panic").take();
        if let Some(mut hook) = hook {
            let succeeds = hook();
            *self.at_read.lock().expect("no panic") = Some(hook);
            if !succeeds {
                let (count, source) = (buffer.len() as u64, std::io::Error::other("it dies"));
                return Err(DeviceError::of_blocks(Operation::Read, address, count, source));
            }
        }
        self.device.read(address, buffer)
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.device.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.device.discard(address, count)
    }
}

/// Regression: the log object of a cut that had been read was never sent when the next cut could not be read.
#[test]
fn a_cut_that_is_read_is_stored_though_the_cache_dies_at_the_next_one() {
    let store = Arc::new(Store::default());
    let device = RamDevice::new(SHAPE.cache_blocks());
    let cache = Arc::new(DyingCache { device, at_read: Mutex::default() });
    let request = request(1, Durability::Local, 64);
    let volume = create(store.clone(), cache.clone(), ([7; 16], SHAPE), &request);
    let volume = Arc::new(volume.expect("a volume"));
    let write = |volume: &Volume, address, byte| {
        let blocks = vec![Block([byte; 4096]); 64];
        volume.write(address, &[&blocks], Stream::default()).expect("a write");
    };
    write(&volume, 0, 1);
    let (weak, mut reads) = (Arc::downgrade(&volume), 0);
    *cache.at_read.lock().expect("no panic") = Some(Box::new(move || {
        reads += 1;
        if let (1, Some(volume)) = (reads, weak.upgrade()) {
            write(&volume, 128, 2);
        }
        reads <= 2
    }));
    volume.upload_due(1_000).expect_err("the cache has died");
    let shown = Snapshot::open(store, Arc::new(PageCache::new(1 << 20))).expect("a state");
    let mut blocks = Block::zeroed(192);
    shown.read(0, &mut blocks).expect("the store has its objects");
    let found = [0, 63, 128, 191].map(|at: usize| blocks[at].0[0]);
    assert_eq!(found, [1, 1, 0, 0], "the first cut, and nothing of the second");
}
