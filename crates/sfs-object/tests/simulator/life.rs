//! Lives of a program that uses an object volume: each ends by a crash, at any request to the store or the cache or between two, or by a
//! close.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use sfs_device::{Block, Device, Event, RamDevice, Stream};
use sfs_object::{
    Durability, EncryptedStore, Failure, FileKey, Limits, LocalState, MemoryStore, Nonce,
    ObjectDevice, ObjectError, OpenError, OpenRequest, PageCache, Shape, create,
};
use sfs_testkit::SeededRng;

use super::cache::{Discards, MortalCache};
use super::model::Model;
use super::store::MortalStore;

const SHAPE: Shape = Shape { volume_blocks: 24 * 32 - 5, region_blocks: 32 };

/// Requests of a life that is not ended by a request.
const MANY: u64 = 1 << 40;

/// Limit of a cache that evicts nothing.
const LARGE: u64 = 1 << 30;

type Objects = Arc<EncryptedStore<MortalStore>>;
type Volume = ObjectDevice<Objects>;

/// Store, caches and model, which outlast a life.
pub(crate) struct World {
    rng: SeededRng,
    objects: Arc<MemoryStore>,
    /// Key of the volume, if it is encrypted.
    key: Option<FileKey>,
    model: Arc<Mutex<Model>>,
    durability: Durability,
    cache_blocks: u64,
    nonces: u8,
    now: u64,
    /// A cache that was not used in the last life.
    old_cache: Option<LeftBehind>,
    /// `true` if the last life has used the volume, so that its cache continues the state of the model.
    has_used: bool,
    /// `true` if a life without the last cache has died while it began: the next one may find either state.
    has_died_without_cache: bool,
    /// Content of discarded blocks of the cache.
    discards: Discards,
    /// Number of each end, and of the blocks of refused caches that are shown and that are not, for the test that all kinds happen.
    pub(crate) ends: [u32; 7],
}

/// A cache that was put aside.
struct LeftBehind {
    cache: RamDevice,
    /// The model of that moment, if the cache continues it.
    model: Option<Model>,
}

/// A life.
struct Life {
    store: MortalStore,
    /// The same store, decrypted.
    decrypted: Objects,
    local: Arc<MortalCache>,
    base: RamDevice,
}

impl World {
    pub(crate) fn new(seed: u64, key: Option<FileKey>) -> Self {
        let mut rng = SeededRng::new(seed);
        let durability = rng.pick(&[Durability::Local, Durability::Remote]);
        let cache_blocks = rng.pick(&[LARGE, 8 * 32]);
        let discards = rng.pick(&[Discards::Zeros, Discards::Nothing, Discards::Garbage]);
        Self {
            rng,
            objects: Arc::default(),
            key,
            model: Arc::new(Mutex::new(Model::new(SHAPE.volume_blocks))),
            durability,
            cache_blocks,
            nonces: 0,
            now: 1000,
            old_cache: None,
            has_used: false,
            has_died_without_cache: false,
            discards,
            ends: [0; 7],
        }
    }

    /// Makes a volume and lives several lives with it.
    pub(crate) fn run(&mut self, lives: u32) -> Result<(), String> {
        let life = self.begin(empty_cache(), MANY);
        let shape = ([9; 16], SHAPE);
        let volume = create(life.decrypted.clone(), life.local.clone(), shape, &self.request())
            .map_err(|error| format!("making: {error}"))?;
        let volume = Arc::new(volume);
        self.live(&life, &volume)?;
        self.has_used = true;
        let mut cache = self.crash(&life);
        for _ in 0..lives {
            cache = self.next(cache)?;
        }
        Ok(())
    }

    /// Lives one life after a crash, and returns its cache.
    fn next(&mut self, cache: RamDevice) -> Result<RamDevice, String> {
        let kept = self.rng.one_in(2);
        let model = std::mem::take(&mut self.has_used).then(|| self.model.lock().clone());
        let left = LeftBehind { cache, model };
        let (cache, left_behind) = match (kept, self.rng.one_in(4)) {
            (true, _) => (left.cache, None),
            (false, false) => {
                self.old_cache = Some(left);
                (empty_cache(), None)
            }
            (false, true) => match self.old_cache.replace(left) {
                Some(LeftBehind { cache, model }) => (cache, model),
                None => (empty_cache(), None),
            },
        };
        let requests = if self.rng.one_in(4) { 1 + self.rng.below(40) } else { MANY };
        let life = self.begin(cache, requests);
        if self.rng.one_in(8) {
            life.local.set_requests(1 + self.rng.below(60));
        }
        let opened = Volume::open(life.decrypted.clone(), life.local.clone(), &self.request());
        let volume = match opened {
            Ok(volume) => Arc::new(volume),
            Err(OpenError::Failure(Failure::Object(ObjectError::Stopped(_)))) => {
                self.ends[0] += 1;
                self.has_died_without_cache |= !kept;
                return Ok(self.crash(&life));
            }
            Err(OpenError::Failure(Failure::Local(_))) if life.local.is_dead() => {
                self.ends[0] += 1;
                self.has_died_without_cache |= !kept;
                return Ok(self.crash(&life));
            }
            Err(OpenError::StaleCache { .. }) if !kept || self.has_died_without_cache => {
                self.ends[1] += 1;
                self.has_died_without_cache = true;
                life.store.end();
                if let Some(model) = left_behind {
                    self.check_left_behind(life.base, &model)?;
                }
                return self.next(empty_cache());
            }
            Err(error) => return Err(format!("opening, with the cache {kept}: {error}")),
        };
        let found = match read_all(&volume) {
            Ok(found) => found,
            Err(_) if requests != MANY || life.local.is_dead() => {
                self.has_died_without_cache |= !kept;
                return Ok(self.crash(&life));
            }
            Err(error) => return Err(format!("reading: {error}")),
        };
        self.check(kept, &found)?;
        self.live(&life, &volume)?;
        self.has_used = true;
        Ok(self.crash(&life))
    }

    /// Checks what a refused cache shows of the state that it continues.
    fn check_left_behind(&mut self, cache: RamDevice, model: &Model) -> Result<(), String> {
        let life = self.begin(cache, MANY);
        let pages = Arc::new(PageCache::new(1 << 20));
        let state = match LocalState::open(life.decrypted.clone(), life.local.clone(), pages) {
            Ok(state) => state,
            // Everything was uploaded, or what the state needs is deleted.
            Err(OpenError::NothingLeft | OpenError::StateDeleted { .. }) => return Ok(()),
            Err(error) => return Err(format!("a cache that was left behind: {error}")),
        };
        let (mut found, mut unread_regions) = (Vec::new(), BTreeSet::new());
        for at in 0..SHAPE.volume_blocks {
            let mut block = Block::zeroed(1);
            match state.read(at, &mut block) {
                Ok(()) => found.push((at, block[0].clone())),
                Err(_) => {
                    unread_regions.insert(at / SHAPE.region_blocks);
                }
            }
        }
        self.ends[5] += found.len() as u32;
        self.ends[6] += SHAPE.volume_blocks as u32 - found.len() as u32;
        let regions = SHAPE.volume_blocks.div_ceil(SHAPE.region_blocks) as usize;
        if unread_regions.len() + state.regions_ahead() > regions {
            return Err("a region of the cache itself cannot be read".to_owned());
        }
        life.store.end();
        model.check_left_behind(&found).map_err(|error| format!("left behind: {error}"))
    }

    /// Checks what was found after a crash.
    fn check(&mut self, kept: bool, found: &[Block]) -> Result<(), String> {
        let mut model = self.model.lock();
        if std::mem::take(&mut self.has_died_without_cache) {
            if model.clone().check_lost(found).is_ok() {
                // The store may have less or more, if this is the last cache after all.
                return model.note_found(found);
            }
            return model.check_kept(found);
        }
        if kept { model.check_kept(found) } else { model.check_lost(found) }
    }

    fn begin(&mut self, cache: RamDevice, requests: u64) -> Life {
        let seed = self.rng.next_u64();
        let store = MortalStore::new(self.objects.clone(), MANY, seed);
        let decrypted = match &self.key {
            None => EncryptedStore::plain(store.clone()),
            key => {
                let random = Mutex::new(SeededRng::new(seed));
                let random = move |bytes: &mut [u8]| {
                    bytes.copy_from_slice(&random.lock().bytes(bytes.len()));
                };
                let opened = EncryptedStore::open(store.clone(), key.as_ref(), Box::new(random));
                opened.expect("the key of the volume")
            }
        };
        store.set_requests(requests);
        let image = SHAPE.cache_blocks() - SHAPE.volume_blocks;
        let local = Arc::new(MortalCache::new(&cache, image, self.discards));
        Life { store, decrypted: Arc::new(decrypted), local, base: cache }
    }

    fn request(&mut self) -> OpenRequest {
        self.nonces += 1;
        // The first reads of a life with a small cache evict what the life before has left.
        let cache_blocks = self.rng.pick(&[self.cache_blocks, LARGE]);
        OpenRequest {
            nonce: Nonce([self.nonces; 16]),
            host: format!("machine {}", self.nonces),
            now: self.now,
            takes_over: true,
            durability: self.durability,
            limits: Limits {
                cache_blocks,
                log_blocks: 100,
                log_objects: 6,
                left_regions: self.rng.pick(&[0, 3, 100]),
                left_objects: 32,
                left_blocks: 60,
                upload_blocks: self.rng.pick(&[32, 100]),
                early_blocks_first: self.rng.pick(&[u64::MAX, 20]),
                early_blocks: 40,
                grace_secs: 3,
            },
        }
    }

    /// Uses the volume until a request fails, or for some time.
    fn live(&mut self, life: &Life, volume: &Arc<Volume>) -> Result<(), String> {
        if self.cache_blocks > SHAPE.volume_blocks && self.rng.one_in(2) {
            self.write_meanwhile(life, volume);
        }
        let requests = if self.rng.one_in(2) { 1 + self.rng.below(60) } else { MANY };
        life.store.set_requests(requests);
        if self.rng.one_in(2) {
            let most = self.rng.pick(&[15, 150]);
            life.local.set_requests(1 + self.rng.below(most));
        }
        for _ in 0..5 + self.rng.below(60) {
            if self.step(volume)?.is_none() {
                self.ends[2] += 1;
                return Ok(());
            }
        }
        match self.rng.below(4) {
            0 | 1 => return self.close(volume),
            2 if self.upload(|| volume.join().is_ok()) => self.read_some(volume)?,
            _ => {}
        }
        self.ends[3] += 1;
        Ok(())
    }

    /// Ends a life by a close, after which some reads are made still.
    fn close(&mut self, volume: &Volume) -> Result<(), String> {
        let now = self.now;
        if !self.upload(|| volume.close(now).is_ok()) {
            self.ends[2] += 1;
            return Ok(());
        }
        self.ends[4] += 1;
        {
            let mut model = self.model.lock();
            model.flushed = model.uploaded;
        }
        self.read_some(volume)
    }

    fn read_some(&mut self, volume: &Volume) -> Result<(), String> {
        for _ in 0..self.rng.below(8) {
            self.read(volume)?;
        }
        Ok(())
    }

    /// Reads some blocks, which are as they were written. Returns whether that has succeeded.
    fn read(&mut self, volume: &Volume) -> Result<bool, String> {
        let (address, count) = range(&mut self.rng, 60);
        let mut blocks = Block::zeroed(count as usize);
        let is_done = volume.read(address, &mut blocks).is_ok();
        if is_done {
            self.model.lock().check_now(address, &blocks)?;
        }
        Ok(is_done)
    }

    /// Writes also while objects are under way.
    fn write_meanwhile(&mut self, life: &Life, volume: &Arc<Volume>) {
        let (model, volume) = (self.model.clone(), Arc::downgrade(volume));
        let mut rng = SeededRng::new(self.rng.next_u64());
        life.store.set_meanwhile(Box::new(move || {
            if let Some(volume) = volume.upgrade().filter(|_| rng.one_in(2)) {
                write(&mut rng, &volume, &model);
            }
        }));
    }

    /// Makes one request. Returns `None` if it has failed.
    fn step(&mut self, volume: &Arc<Volume>) -> Result<Option<()>, String> {
        let done = match self.rng.below(16) {
            0..8 => write(&mut self.rng, volume, &self.model),
            8..10 => self.flush(volume),
            10..12 => {
                self.now += self.rng.below(3);
                let now = self.now;
                self.upload(|| volume.work(now).is_ok())
            }
            12 => self.upload(|| volume.join().is_ok()),
            13 => {
                let (address, count) = range(&mut self.rng, 100);
                // One that fails may have had an effect.
                self.model.lock().discard(address, count);
                volume.discard(address, count).is_ok()
            }
            _ => self.read(volume)?,
        };
        Ok(done.then_some(()))
    }

    /// Flushes the volume: everything before is durable by its contract.
    fn flush(&self, volume: &Volume) -> bool {
        let before = self.model.lock().now();
        let is_done = match self.durability {
            Durability::Local => volume.flush().is_ok(),
            Durability::Remote => self.upload(|| volume.flush().is_ok()),
        };
        if is_done {
            self.model.lock().flushed = before;
        }
        is_done
    }

    /// Makes a request that uploads everything before it.
    fn upload(&self, request: impl FnOnce() -> bool) -> bool {
        let before = self.model.lock().now();
        let is_done = request();
        if is_done {
            self.model.lock().uploaded = before;
        }
        is_done
    }

    /// Ends a life. Returns its cache after the loss of power: what was flushed, and some of the rest.
    fn crash(&mut self, life: &Life) -> RamDevice {
        life.store.end();
        life.store.land();
        let events = life.local.take_events();
        let flushed = events.iter().rposition(|event| *event == Event::Flush).unwrap_or(0);
        let cache = life.base.snapshot();
        for (no, event) in events.iter().enumerate() {
            if no <= flushed || self.rng.one_in(2) {
                event.apply(&cache);
            }
        }
        cache
    }
}

fn empty_cache() -> RamDevice {
    RamDevice::new(SHAPE.cache_blocks())
}

fn read_all(volume: &Volume) -> Result<Box<[Block]>, sfs_device::DeviceError> {
    let mut blocks = Block::zeroed(SHAPE.volume_blocks as usize);
    volume.read(0, &mut blocks)?;
    Ok(blocks)
}

/// Returns a range of at most `most` blocks; the first blocks of the volume are more frequent.
fn range(rng: &mut SeededRng, most: u64) -> (u64, u64) {
    let end = if rng.one_in(3) { 40 } else { SHAPE.volume_blocks };
    let address = rng.below(end);
    (address, 1 + rng.below(most.min(SHAPE.volume_blocks - address)))
}

fn write(rng: &mut SeededRng, volume: &Volume, model: &Mutex<Model>) -> bool {
    let most = rng.pick(&[1, 3, 40]);
    let (address, count) = range(rng, most);
    let (stamp, blocks) = model.lock().content(address, count);
    let is_done = volume.write(address, &[&blocks], Stream::default()).is_ok();
    if is_done {
        model.lock().write(address, count, stamp);
    }
    is_done
}
