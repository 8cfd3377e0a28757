//! A disk with an SSD cache: crash states of both devices, each with its own lost, torn and reordered requests.
//!
//! A [`run`] is a sequence of mounts with and without the cache. A mount ends by an unmount or by a power cut; between mounts
//! a device may be replaced by an earlier image of itself, or the cache by that of another volume. The SSD may fail or lie at
//! any request. A state is right if the volume with its cache shows what the disk alone shows, no operation fails for the
//! cache, and every copy that the cache takes is what the disk has. What the disk alone shows is the business of
//! [`check`](mod@crate::check).

mod session;
mod ssd;

use std::sync::{Arc, LazyLock};

use sfs_cache::{Cache, CacheError, CachedDevice, Identity, MakeOptions, PolicyName, Warmth};
use sfs_core::format::{DataLayout, SUPERBLOCK_ADDRESS};
use sfs_core::request::VolumeOptions;
use sfs_core::{Volume, read_superblock};
use sfs_device::{Block, Device, Event};

use crate::crash::{Crash, RequestEffect, epochs};
use crate::empty_volume::empty_volume;
use crate::image::CowImage;
use crate::model::fixture::{NOW, tight};
use crate::model::random::SplitMix64;
use session::{Session, View};

/// Segments of the volume.
const SEGMENTS: u64 = 32;

/// Blocks of the cache device: a header, a map, and 12 segments of 16 blocks.
const CACHE_BLOCKS: u64 = 32 + 12 * 16;

/// Mounts of a run.
const MOUNTS: u64 = 6;

/// States that are checked at each power cut.
const STATES_OF_CUT: u64 = 12;

/// UUID of the cache of the volume.
const CACHE_UUID: [u8; 16] = *b"the model  cache";

/// Violation of the rules for a state, or for a mount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An operation of the volume failed.
    #[error("{0}")]
    Failed(String),
    /// A file has other content than on the disk alone.
    #[error("file {0} has other content than on the disk alone")]
    Content(String),
    /// The volume has other files than the disk alone.
    #[error("the volume has other files than the disk alone")]
    Names,
    /// A copy is not what the disk has.
    #[error("the cache has another block {0} than the disk")]
    Unequal(u64),
    /// A cache that was closed, and whose disk nobody has written to, is not warm.
    #[error("a cache that was closed is not warm but {0:?}")]
    NotWarm(Option<Warmth>),
    /// The cache was given up although its device is sound.
    #[error("the cache was given up: {0}")]
    GivenUp(String),
    /// The cache is still used although its device has returned wrong data.
    #[error("the cache is used although its device lies")]
    LieForgiven,
    /// The disk was written before the epoch of the mount was durable: a cut would leave a cache that looks warm.
    #[error("the disk was written before the epoch of the mount was durable")]
    EpochLate,
    /// The cache of another volume was taken.
    #[error("the cache of another volume was taken")]
    OtherVolume,
    /// The volume has recorded errors that the disk did not have.
    #[error("the volume has recorded errors that did not happen")]
    Remembered,
}

/// Both devices between two mounts.
#[derive(Clone)]
struct Devices {
    disk: CowImage,
    cache: CowImage,
    /// `true` if the last mount has closed both, and nobody has written since.
    is_warm: bool,
    /// `true` once the SSD has lost or garbled what was written.
    has_lied: bool,
}

/// A volume that is mounted with its cache, or without.
struct Mounted {
    volume: Volume,
    cache: Option<Arc<Cache>>,
}

/// Runs the mounts of `seed`. Returns the number of states that were checked.
///
/// # Errors
///
/// The first violation.
pub fn run(seed: u64) -> Result<u64, Violation> {
    let mut random = SplitMix64::new(seed);
    let mut devices = fresh();
    let mut earlier: Vec<Devices> = Vec::new();
    let mut states = 0;
    for _ in 0..MOUNTS {
        swap(&mut devices, &earlier, &mut random);
        earlier.push(devices.clone());
        let mut session = Session::begin(&devices, random.below(6) > 0, &mut random)?;
        for _ in 0..random.below(60) {
            session.step(&mut random)?;
        }
        let images = session.image_of_disk();
        earlier.push(Devices { disk: images, ..devices.clone() });
        let before = devices.clone();
        let ends = random.below(3) > 0;
        let (disk, cache) = session.end(ends, &mut random)?;
        check_epoch_first(&before.disk, &disk)?;
        for _ in 0..STATES_OF_CUT {
            let mut cut = |start, events| cut(start, events, &mut random);
            let state = Devices {
                disk: cut(&before.disk, &disk),
                cache: cut(&before.cache, &cache),
                is_warm: false,
                has_lied: before.has_lied || session.has_lied(),
            };
            check(state, &mut random)?;
            states += 1;
        }
        // What an unmount has written is durable when it returns.
        let unmounted = Devices {
            disk: durable(&before.disk, &disk),
            cache: durable(&before.cache, &cache),
            is_warm: ends && session.was_closed(),
            has_lied: before.has_lied || session.has_lied(),
        };
        check(unmounted, &mut random)?;
        states += 1;
        devices = Devices {
            disk: last(&before.disk, &disk),
            cache: last(&before.cache, &cache),
            is_warm: ends && session.was_closed(),
            has_lied: before.has_lied || session.has_lied(),
        };
        if !ends && random.one_in(2) {
            devices.disk = cut(&before.disk, &disk, &mut random);
            devices.cache = cut(&before.cache, &cache, &mut random);
        }
        check(devices.clone(), &mut random)?;
        states += 1;
    }
    Ok(states)
}

/// A volume with files, whose segments have all been used.
static USED: LazyLock<CowImage> = LazyLock::new(|| {
    let disk = Arc::new(empty_volume(DataLayout::Log, SEGMENTS));
    let volume = Volume::open(disk.clone(), tight(), NOW).expect("the volume opens");
    volume.set_cache(Some(CACHE_UUID)).expect("RAM");
    let mut random = SplitMix64::new(1);
    for _ in 0..120 {
        session::write_any(&volume, &mut random).expect("RAM");
        volume.sync_all().expect("RAM");
    }
    volume.close().expect("RAM");
    drop(volume);
    Arc::into_inner(disk).expect("the volume is closed")
});

/// Returns a used volume with an empty cache.
fn fresh() -> Devices {
    let disk = USED.clone();
    let volume_uuid = read_superblock(&disk).expect("a volume").uuid;
    let cache = empty_cache(volume_uuid, PolicyName::default());
    Devices { disk, cache, is_warm: false, has_lied: false }
}

fn empty_cache(volume_uuid: [u8; 16], policy: PolicyName) -> CowImage {
    let cache = CowImage::new(CACHE_BLOCKS);
    let options = MakeOptions { volume_uuid, cache_uuid: CACHE_UUID, sections: Vec::new(), policy };
    sfs_cache::make(&cache, &options).expect("RAM");
    cache
}

/// Replaces a device by one from another time, or of another volume, now and then.
fn swap(devices: &mut Devices, earlier: &[Devices], random: &mut SplitMix64) {
    if earlier.is_empty() {
        return;
    }
    let other = &earlier[random.below(earlier.len() as u64) as usize];
    match random.below(10) {
        0 => devices.disk = other.disk.clone(),
        1 => devices.cache = other.cache.clone(),
        2 => devices.cache = CowImage::new(CACHE_BLOCKS),
        3 => devices.cache = empty_cache([0xee; 16], PolicyName::Lru),
        // The policy makes no difference to what is right.
        4 => devices.cache = empty_cache(*b"the model volume", random.pick(&PolicyName::ALL)),
        _ => return,
    }
    devices.is_warm = false;
}

/// Returns a state that a power cut could leave of the requests `events` to `start`.
fn cut(start: &CowImage, events: &[Event], random: &mut SplitMix64) -> CowImage {
    let epochs = epochs(events);
    let epoch = epochs[random.below(epochs.len() as u64) as usize].clone();
    let durable = last(start, &events[..epoch.start]);
    let len = random.below(epoch.len() as u64 + 1) as usize;
    Crash::random(epoch.start..epoch.start + len, random).image(&durable, events)
}

/// Checks that the epoch of a mount was durable before the disk was written elsewhere than in its superblocks.
fn check_epoch_first(start: &CowImage, events: &[Event]) -> Result<(), Violation> {
    let before = read_superblock(start).map_err(failed)?;
    let is_superblock = |address| [SUPERBLOCK_ADDRESS, before.layout.backup].contains(&address);
    let is_other = |event: &Event| match event {
        Event::Write { range, .. } => !is_superblock(range.address),
        Event::Discard { .. } => true,
        Event::Flush => false,
    };
    let Some(first) = events.iter().position(is_other) else { return Ok(()) };
    let by_then = read_superblock(&durable(start, &events[..first])).map_err(failed)?;
    if by_then.epoch == before.epoch { Err(Violation::EpochLate) } else { Ok(()) }
}

/// Returns the image after all requests up to the last flush.
fn durable(start: &CowImage, events: &[Event]) -> CowImage {
    let flushed = events.iter().rposition(|event| *event == Event::Flush);
    last(start, &events[..flushed.map_or(0, |at| at + 1)])
}

/// Returns the image after all requests.
fn last(start: &CowImage, events: &[Event]) -> CowImage {
    let image = start.clone();
    events.iter().for_each(|event| crate::crash::apply(&image, event, RequestEffect::Done));
    image
}

/// Opens the cache for the disk; `None` if it is not one.
fn open_cache(disk: &dyn Device, cache: Arc<dyn Device>) -> Result<Option<Cache>, Violation> {
    let superblock = read_superblock(disk).map_err(failed)?;
    let (volume_uuid, cache_uuid) = (superblock.uuid, superblock.cache_uuid);
    let foreign =
        sfs_cache::CacheHeader::read(&*cache).is_ok_and(|header| header.volume_uuid != volume_uuid);
    let of = Identity { volume_uuid, cache_uuid, epoch: superblock.epoch };
    match Cache::open(cache, &of, u64::MAX) {
        Ok(_) if foreign => Err(Violation::OtherVolume),
        Ok(cache) => Ok(Some(cache)),
        Err(CacheError::NotACache | CacheError::OtherVolume | CacheError::Device(_)) => Ok(None),
        Err(error) => Err(Violation::Failed(error.to_string())),
    }
}

/// Asserts that every copy is what the disk has.
fn check_copies(cache: &Cache, disk: &dyn Device) -> Result<(), Violation> {
    let mut block = Block::ZERO;
    for (address, copy) in cache.all_copies().map_err(|error| failed(error.into()))? {
        let read = disk.read(address, std::slice::from_mut(&mut block));
        read.map_err(|error| failed(error.into()))?;
        if block != copy {
            return Err(Violation::Unequal(address));
        }
    }
    Ok(())
}

/// Mounts the volume on `disk`, with its cache if there is one.
fn mount(
    disk: Arc<dyn Device>,
    cache: Option<Cache>,
    discard: bool,
    random: &mut SplitMix64,
) -> Result<Mounted, Violation> {
    let epoch = random_epoch(random);
    let cache = cache.map(Arc::new);
    let used: Arc<dyn Device> = match &cache {
        Some(cache) => Arc::new(CachedDevice::new(disk, cache.clone())),
        None => disk,
    };
    let options = VolumeOptions { epoch, discard, ..tight() };
    let volume = Volume::open(used, options, NOW).map_err(failed)?;
    if let Some(cache) = &cache {
        cache.begin(epoch);
    }
    Ok(Mounted { volume, cache })
}

/// Unmounts.
fn close(mounted: &Mounted, random: &mut SplitMix64) -> Result<(), Violation> {
    mounted.volume.close().map_err(failed)?;
    let epoch = random_epoch(random);
    mounted.volume.end_epoch(epoch).map_err(failed)?;
    if let Some(cache) = &mounted.cache {
        cache.close(epoch);
    }
    Ok(())
}

fn random_epoch(random: &mut SplitMix64) -> [u8; 16] {
    random.bytes(16).try_into().expect("16 bytes")
}

fn failed(error: sfs_core::Error) -> Violation {
    Violation::Failed(error.to_string())
}

/// Checks that the volume with its cache is the volume on the disk alone, uses it, and checks it after an unmount.
fn check(state: Devices, random: &mut SplitMix64) -> Result<(), Violation> {
    let alone = Volume::open(
        Arc::new(state.disk.clone()),
        VolumeOptions { read_only: true, ..tight() },
        NOW,
    );
    let view = View::of(&alone.map_err(failed)?)?;
    let (disk, device) = (Arc::new(state.disk), Arc::new(state.cache));
    let cache = open_cache(&*disk, device.clone())?;
    let warmth = cache.as_ref().map(Cache::warmth);
    if state.is_warm && warmth != Some(Warmth::Warm) {
        return Err(Violation::NotWarm(warmth));
    }
    if let (Some(cache), false) = (&cache, state.has_lied) {
        check_copies(cache, &*disk)?;
    }
    let mounted = mount(disk.clone(), cache, random.one_in(2), random)?;
    for _ in 0..2 {
        view.compare(&mounted.volume)?;
        if let Some(cache) = &mounted.cache {
            while cache.work() {}
        }
    }
    session::overwrite_some(&mounted.volume, random)?;
    if !mounted.volume.remembered().is_empty() {
        return Err(Violation::Remembered);
    }
    let given_up = mounted.cache.as_ref().and_then(|cache| cache.stat().dropped);
    if let (Some(reason), false) = (&given_up, state.has_lied) {
        return Err(Violation::GivenUp(reason.clone()));
    }
    close(&mounted, random)?;
    let had_cache = mounted.cache.is_some();
    drop(mounted);
    let again = open_cache(&*disk, device)?;
    if had_cache && given_up.is_none() && again.as_ref().map(Cache::warmth) != Some(Warmth::Warm) {
        return Err(Violation::NotWarm(again.as_ref().map(Cache::warmth)));
    }
    match again {
        Some(cache) if !state.has_lied => check_copies(&cache, &*disk),
        _ => Ok(()),
    }
}
