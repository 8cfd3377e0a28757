//! Readers beside a writer that goes on between any two of their requests, and deletes what it does not need after a short grace time:
//! what a snapshot shows is one state that the volume has had, and not older than what was uploaded before it was opened.
//!
//! A failed run names its seed. `SFS_SEED=7 cargo test -p sfs-object --test snapshots` repeats one.

#[expect(dead_code, reason = "the lives of a writer check more")]
#[path = "simulator/model.rs"]
mod model;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use model::Model;
use parking_lot::Mutex;
use sfs_device::{Block, Device, RamDevice, Stream};
use sfs_object::{
    Durability, Limits, MemoryStore, Nonce, Object, ObjectDevice, ObjectName, ObjectStore,
    OpenRequest, PageCache, Part, PutReply, Shape, Snapshot, Stopped, create,
};
use sfs_testkit::{SeededRng, number_from_env};

const SHAPE: Shape = Shape { volume_blocks: 12 * 32 - 5, region_blocks: 32 };

const SEEDS: std::ops::Range<u64> = 0..300;

/// A writer, and a model of what it has written.
struct Writer {
    objects: Arc<MemoryStore>,
    volume: ObjectDevice<Arc<MemoryStore>>,
    model: Model,
    rng: SeededRng,
    now: u64,
    epochs: u8,
}

fn request(epochs: u8, now: u64) -> OpenRequest {
    OpenRequest {
        nonce: Nonce([epochs; 16]),
        host: "host".into(),
        now,
        takes_over: true,
        durability: Durability::Local,
        limits: Limits {
            log_blocks: 60,
            log_objects: 4,
            upload_blocks: 64,
            grace_secs: 2,
            ..Limits::of_mount(1 << 30)
        },
    }
}

fn cache() -> Arc<RamDevice> {
    Arc::new(RamDevice::new(SHAPE.cache_blocks()))
}

impl Writer {
    fn new(objects: Arc<MemoryStore>, rng: SeededRng) -> Result<Self, String> {
        let volume = create(objects.clone(), cache(), ([9; 16], SHAPE), &request(1, 1_000))
            .map_err(|error| format!("making: {error}"))?;
        let model = Model::new(SHAPE.volume_blocks);
        Ok(Self { objects, volume, model, rng, now: 1_000, epochs: 1 })
    }

    fn step(&mut self) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("the writer: {error}");
        match self.rng.below(24) {
            0..12 => {
                let address = self.rng.below(SHAPE.volume_blocks);
                let most = self.rng.pick(&[1, 4, 40]).min(SHAPE.volume_blocks - address);
                let count = 1 + self.rng.below(most);
                let (stamp, blocks) = self.model.content(address, count);
                self.volume
                    .write(address, &[&blocks], Stream::default())
                    .map_err(|error| failed(&error))?;
                self.model.write(address, count, stamp);
                return Ok(());
            }
            12 => {
                let address = self.rng.below(SHAPE.volume_blocks - 100);
                self.model.discard(address, 100);
                return self.volume.discard(address, 100).map_err(|error| failed(&error));
            }
            13..16 => self.volume.upload().map_err(|error| failed(&error))?,
            16..19 => {
                self.now += self.rng.below(3);
                self.volume.work(self.now).map_err(|error| failed(&error))?;
            }
            19..22 => {
                self.volume.join().map_err(|error| failed(&error))?;
                self.now += 2;
                for _ in 0..2 {
                    self.now += 2;
                    self.volume.work(self.now).map_err(|error| failed(&error))?;
                }
            }
            _ if self.epochs < 200 => self.take_over()?,
            _ => return Ok(()),
        }
        self.model.uploaded = self.model.now();
        Ok(())
    }

    /// Goes on in another epoch, without the cache.
    fn take_over(&mut self) -> Result<(), String> {
        self.volume.upload().map_err(|error| format!("uploading: {error}"))?;
        self.epochs += 1;
        let request = request(self.epochs, self.now);
        let opened = ObjectDevice::open(self.objects.clone(), cache(), &request);
        self.volume = opened.map_err(|error| format!("taking over: {error}"))?;
        Ok(())
    }
}

/// The store as a reader sees it: the writer goes on before each request.
#[derive(Clone)]
struct ReadersStore {
    objects: Arc<MemoryStore>,
    writer: Arc<Mutex<Writer>>,
    failure: Arc<Mutex<Option<String>>>,
}

impl ReadersStore {
    fn go_on(&self) {
        let mut writer = self.writer.lock();
        let steps = if writer.rng.one_in(20) { writer.rng.below(12) } else { 0 };
        for _ in 0..steps {
            if let Err(reason) = writer.step() {
                *self.failure.lock() = Some(reason);
            }
        }
    }
}

impl ObjectStore for ReadersStore {
    fn put_all(&self, _: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        panic!("a reader writes nothing");
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        self.go_on();
        self.objects.get(name)
    }

    fn get_parts(
        &self,
        parts: &[Part],
        wait: Option<Duration>,
    ) -> Result<Vec<Option<Vec<u8>>>, Stopped> {
        self.go_on();
        self.objects.get_parts(parts, wait)
    }

    fn delete(&self, _: ObjectName) -> Result<(), Stopped> {
        panic!("a reader deletes nothing");
    }
}

/// Number of states that were read, and of those that became old before.
type Counts = [u32; 2];

fn run(seed: u64) -> Result<Counts, String> {
    let mut rng = SeededRng::new(seed);
    let objects = Arc::new(MemoryStore::default());
    let writer = Writer::new(objects.clone(), SeededRng::new(rng.next_u64()))?;
    let writer = Arc::new(Mutex::new(writer));
    let store = ReadersStore { objects, writer: writer.clone(), failure: Arc::default() };
    let pages = Arc::new(PageCache::new(rng.pick(&[0, 5 << 16, 1 << 24])));
    let mut counts = [0; 2];
    let mut floor = writer.lock().model.uploaded;
    let opened = Snapshot::open(store.clone(), pages);
    let mut snapshot = opened.map_err(|error| format!("opening: {error}"))?;
    for _ in 0..6 {
        match read_all(&mut rng, &snapshot)? {
            Some(found) => {
                let mut model = writer.lock().model.clone();
                model.uploaded = floor;
                model.check_lost(&found)?;
                floor = model.uploaded;
                counts[0] += 1;
            }
            None => counts[1] += 1,
        }
        let is_old = snapshot.is_old();
        let uploaded = writer.lock().model.uploaded;
        match snapshot.newer().map_err(|error| format!("looking: {error}"))? {
            Some(newer) => snapshot = newer,
            None if is_old => return Err("an old state is the newest".into()),
            None => {}
        }
        floor = floor.max(uploaded);
        if let Some(reason) = store.failure.lock().take() {
            return Err(reason);
        }
    }
    Ok(counts)
}

/// Reads all blocks, or returns `None` if the state has become old.
fn read_all(
    rng: &mut SeededRng,
    snapshot: &Snapshot<ReadersStore>,
) -> Result<Option<Box<[Block]>>, String> {
    let mut blocks = Block::zeroed(SHAPE.volume_blocks as usize);
    let step = rng.pick(&[7, 100, 1000]);
    for (no, buffer) in blocks.chunks_mut(step).enumerate() {
        match snapshot.read((no * step) as u64, buffer) {
            Ok(()) => {}
            Err(error) if error.source.kind() == ErrorKind::StaleNetworkFileHandle => {
                return Ok(None);
            }
            Err(error) => return Err(format!("reading: {error}")),
        }
    }
    Ok(Some(blocks))
}

fn run_all(seeds: std::ops::Range<u64>) -> Result<Counts, String> {
    let mut all = [0; 2];
    for seed in seeds {
        let counts = run(seed).map_err(|reason| format!("SFS_SEED={seed}: {reason}"))?;
        all.iter_mut().zip(counts).for_each(|(all, one)| *all += one);
    }
    Ok(all)
}

#[test]
fn a_reader_sees_one_state_of_the_past() {
    let seed = Some(number_from_env("SFS_SEED", u64::MAX)).filter(|seed| *seed < u64::MAX);
    let seeds = seed.map_or(SEEDS, |seed| seed..seed + 1);
    let counts = run_all(seeds).unwrap_or_else(|reason| panic!("{reason}"));
    println!("states read, states that became old: {counts:?}");
    assert!(seed.is_some() || counts.iter().all(|count| *count > 50), "{counts:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn each_deliberate_bug_of_snapshots_is_found() {
    use sfs_object::mutant::{Mutant, release};

    let mut missed = Vec::new();
    for mutant in Mutant::OF_SNAPSHOTS {
        release(Some(mutant));
        match run_all(SEEDS) {
            Err(reason) => println!("{mutant:?}: {reason}"),
            Ok(_) => missed.push(mutant),
        }
    }
    release(None);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
