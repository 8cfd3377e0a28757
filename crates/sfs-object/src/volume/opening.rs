//! Making a volume, and beginning to use one: who may, what the cache is worth, and what the log objects add.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use sfs_device::{BLOCK_SIZE, Device};

use super::dirty::{self, DirtyRegions};
use super::local::{Local, LocalHeader, bits};
use super::log_record::{LogContent, Record};
use super::shape::Shape;
use super::state::VolumeState;
use super::upload::Uploader;
use super::{Durability, Limits, ObjectDevice, OpenError, State};
use crate::error::ObjectError;
use crate::frame::Nonce;
use crate::mutant::{Mutant, mutated};
use crate::name::{Epoch, ObjectName};
use crate::reader::{for_each_data, read_newest};
use crate::store::ObjectStore;
use crate::takeover::{LogSize, Recovered};
use crate::thinning::Thinning;
use crate::writer::{Claim, Writer};

/// How a volume is used.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// 128 random bits, drawn for this call.
    pub nonce: Nonce,
    /// Name of this machine, for others who find the volume in use.
    pub host: String,
    /// Seconds since 1970.
    pub now: u64,
    /// `true` if a volume is used that another writer has not released.
    pub takes_over: bool,
    /// Contract of a flush.
    pub durability: Durability,
    /// Bounds.
    pub limits: Limits,
}

/// Returns the newest state of the volume. Changes nothing.
pub fn read_state(store: &impl ObjectStore) -> Result<VolumeState, OpenError> {
    let newest = read_newest(store, Thinning::OF_VOLUMES)?;
    VolumeState::decode(&newest.manifest.state).ok_or(OpenError::State)
}

/// Makes a volume of zeros, with the random bits `id`, and uses it.
///
/// # Errors
///
/// [`OpenError::Exists`] if the store has a volume, [`OpenError::UsedCache`] if the cache belongs to one, and [`OpenError::Shape`]
/// if no volume can have this shape. Nothing is changed then.
pub fn create<S: ObjectStore + Clone>(
    store: S,
    local: Arc<dyn Device>,
    (id, shape): ([u8; 16], Shape),
    request: &OpenRequest,
) -> Result<ObjectDevice<S>, OpenError> {
    if !shape.is_sound() {
        return Err(OpenError::Shape(shape));
    }
    match read_state(&store) {
        Err(OpenError::Failure(super::Failure::Object(ObjectError::NoVolume))) => {}
        Ok(_) | Err(OpenError::State) => return Err(OpenError::Exists),
        Err(error) => return Err(error),
    }
    let local = local_of(local, shape)?;
    // The header of a creation that was cut short names no state: nothing was written to that cache.
    if local.header()?.is_some_and(|header| header.state_epoch != Epoch(0)) {
        return Err(OpenError::UsedCache);
    }
    let (writer, recovered) =
        Writer::take_over(store.clone(), request.nonce, Thinning::OF_VOLUMES)?;
    if recovered.is_some() {
        return Err(OpenError::Exists);
    }
    let mut header = local.reset(id)?;
    header.claimed_epoch = writer.epoch();
    local.set_header(&mut header)?;
    let begun = Begun { store, local, header, writer, ahead: bits(shape.regions()), present: None };
    begun.publish(VolumeState::empty(id, shape), &[], request)
}

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    /// Begins to use the volume, with a cache that has been used before or is empty.
    ///
    /// The volume has to be released, or last used with this cache, or `takes_over` is set: nothing is written to the store otherwise.
    pub fn open(
        store: S,
        local: Arc<dyn Device>,
        request: &OpenRequest,
    ) -> Result<Self, OpenError> {
        let before = read_newest(&store, Thinning::OF_VOLUMES)?;
        let state = VolumeState::decode(&before.manifest.state).ok_or(OpenError::State)?;
        let local = local_of(local, state.shape)?;
        let found = Found::in_cache(&local)?;
        found.check(&state, (before.epoch, before.number), request)?;
        let claim = Claim::new(store.clone(), request.nonce, Thinning::OF_VOLUMES)?;
        // Whoever has begun meanwhile is left alone.
        let now = read_newest(&store, Thinning::OF_VOLUMES)?;
        let state = VolumeState::decode(&now.manifest.state).ok_or(OpenError::State)?;
        let is_own = found.check(&state, (now.epoch, now.number), request)?;
        let (writer, recovered) = claim.seal()?;
        let recovered = recovered.ok_or(ObjectError::NoVolume)?;
        let state = VolumeState::decode(&recovered.manifest.state).ok_or(OpenError::State)?;
        if found.check(&state, (recovered.epoch, recovered.number), request)? != is_own {
            return Err(OpenError::InUse { host: state.host });
        }
        let mut header = match (&found.header, is_own) {
            (Some(header), true) => *header,
            _ => local.reset(state.id)?,
        };
        let present = match is_own && header.is_closed {
            true => Some(local.present()?),
            false => None,
        };
        // The first manifest of this epoch may be published from here on, and be there after a crash.
        (header.state_epoch, header.claimed_epoch) = (recovered.epoch, writer.epoch());
        (header.manifest, header.is_closed) = (recovered.number, false);
        local.set_header(&mut header)?;
        let ahead = if is_own { found.ahead } else { bits(state.shape.regions()) };
        let begun = Begun { store, local, header, writer, ahead, present };
        let log = begun.log(&state, recovered)?;
        begun.publish(state, &log, request)
    }
}

pub(super) fn local_of(device: Arc<dyn Device>, shape: Shape) -> Result<Local, OpenError> {
    let (actual, needed) = (device.geometry().block_count, shape.cache_blocks());
    match actual < needed {
        true => Err(OpenError::SmallCache { actual, needed }),
        false => Ok(Local::new(device, shape)),
    }
}

/// Header and map of a cache from its last use.
struct Found {
    header: Option<LocalHeader>,
    ahead: FixedBitSet,
}

impl Found {
    fn in_cache(local: &Local) -> Result<Self, OpenError> {
        let header = local.header()?;
        // The shape of a volume never changes.
        if header.is_some_and(|header| header.shape != local.shape) {
            return Err(OpenError::ForeignCache);
        }
        let ahead = match header {
            Some(_) => local.ahead()?,
            None => bits(local.shape.regions()),
        };
        Ok(Self { header, ahead })
    }

    /// Returns whether the cache continues this state, which the writer of `epoch` has published by its manifest `number`.
    ///
    /// # Errors
    ///
    /// The volume may not be used with this cache, or not without a takeover.
    fn check(
        &self,
        state: &VolumeState,
        (epoch, number): (Epoch, u64),
        request: &OpenRequest,
    ) -> Result<bool, OpenError> {
        if self.header.is_some_and(|header| header.id != state.id) {
            return Err(OpenError::ForeignCache);
        }
        // Newest states never get older.
        let seen = self.header.map(|header| (header.state_epoch, header.manifest));
        if seen.is_some_and(|seen| seen > (epoch, number)) {
            return Err(OpenError::RolledBack);
        }
        let continues =
            |header: LocalHeader| [header.state_epoch, header.claimed_epoch].contains(&epoch);
        if self.header.is_some_and(continues) || mutated(Mutant::StaleCacheUsed) {
            return Ok(true);
        }
        let regions = self.ahead.count_ones(..);
        if regions > 0 {
            return Err(OpenError::StaleCache { host: state.host.clone(), regions });
        }
        match state.is_released || request.takes_over {
            true => Ok(false),
            false => Err(OpenError::InUse { host: state.host.clone() }),
        }
    }
}

/// A log object and its content.
type NamedLog = (ObjectName, LogContent);

/// A volume whose earlier epochs are sealed, and whose state is not published yet.
struct Begun<S> {
    store: S,
    local: Local,
    header: LocalHeader,
    writer: Writer<S>,
    ahead: FixedBitSet,
    /// Pages that the image holds, if it was closed.
    present: Option<FixedBitSet>,
}

impl<S: ObjectStore + Clone> Begun<S> {
    /// Returns the log objects that follow the map of `state`, in order.
    fn log(&self, state: &VolumeState, recovered: Recovered) -> Result<Vec<NamedLog>, OpenError> {
        let mut log = Vec::new();
        let mut add = |name, bytes: &[u8]| {
            log.push((name, LogContent::decode(bytes, state.shape).ok_or(OpenError::State)?));
            Ok::<_, OpenError>(())
        };
        let mut size = LogSize::default();
        for_each_data(&self.store, &state.log, |name, bytes| {
            size.add(name, &bytes)?;
            add(name, &bytes)
        })?;
        for (number, bytes) in (recovered.manifest.log_start..).zip(recovered.log) {
            add(ObjectName::Log(recovered.epoch, number), &bytes)?;
        }
        Ok(log)
    }

    /// Publishes the state with these log objects, and returns the device, whose image has them.
    fn publish(
        self,
        mut state: VolumeState,
        log: &[NamedLog],
        request: &OpenRequest,
    ) -> Result<ObjectDevice<S>, OpenError> {
        let shape = self.local.shape;
        state.log = log.iter().map(|(name, _)| *name).collect();
        (state.is_released, state.host) = (false, request.host.clone());
        let garbage = state.garbage.drain(..).map(|name| (name, None)).collect::<VecDeque<_>>();
        let (map, open) = (state.map.clone(), self.open());
        let mut uploader = Uploader {
            writer: self.writer,
            published: VolumeState::empty(state.id, shape),
            log_start: 1,
            log_blocks: 0,
            left_blocks: log.iter().map(|(_, content)| content.block_count()).sum(),
            header: self.header,
            superseded: Vec::new(),
            garbage,
            now: request.now,
        };
        uploader.publish(state, 1)?;
        uploader.header.state_epoch = uploader.writer.epoch();
        uploader.header.manifest = uploader.writer.manifests();
        self.local.set_header(&mut uploader.header)?;
        let present = self.present.unwrap_or_else(|| bits(shape.pages()));
        let mut state = State {
            map,
            published: BTreeMap::new(),
            present_pages: present.count_ones(..),
            present,
            ahead: self.ahead,
            open,
            written: 0,
            early: request.limits.early_blocks_first,
            discarded: BTreeSet::new(),
            frozen: None,
            unjoined: BTreeSet::new(),
            busy: HashSet::new(),
            used: bits(shape.regions()),
            hand: 0,
            writes_zeros: false,
            failure: None,
            is_final: false,
        };
        // The image has regions ahead whole.
        let ahead = state.ahead.ones().collect::<Vec<_>>();
        ahead.iter().for_each(|no| state.add_pages(shape.pages_of(shape.blocks(*no as u64))));
        let geometry = self.local.geometry();
        let device = ObjectDevice::new(
            (self.store, self.local, geometry),
            (request.durability, request.limits),
            state,
            uploader,
        );
        device.apply_log(log)?;
        Ok(device)
    }

    /// Returns all blocks of the regions that may be ahead of the store.
    fn open(&self) -> DirtyRegions {
        let mut open = DirtyRegions::new();
        for region in self.ahead.ones() {
            dirty::add(&mut open, self.local.shape, self.local.shape.blocks(region as u64));
        }
        open
    }
}

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    /// Applies log objects of earlier epochs. Their pieces go to the image, except in regions that are ahead: there the image is
    /// at least as new.
    fn apply_log(&self, log: &[NamedLog]) -> Result<(), OpenError> {
        let shape = self.local.shape;
        let mut pieces: BTreeMap<u64, Vec<(u64, &[u8])>> = BTreeMap::new();
        for (_, content) in log {
            let mut rest = &content.blocks[..];
            for record in &content.records {
                match *record {
                    Record::Piece { address, blocks } => {
                        let (bytes, after) = rest.split_at(blocks as usize * BLOCK_SIZE);
                        rest = after;
                        let region = address / shape.region_blocks;
                        pieces.entry(region).or_default().push((address, bytes));
                    }
                    Record::Whole { region, .. } | Record::Zero { region } => {
                        pieces.remove(&region);
                    }
                }
            }
            let superseded = self.apply_records(&content.records);
            self.uploader.lock().superseded.extend(superseded);
        }
        let regions = pieces.keys().copied().filter(|region| {
            let state = self.state.lock();
            !state.ahead.contains(*region as usize) || mutated(Mutant::OldPiecesWin)
        });
        let regions = regions.collect::<Vec<_>>();
        self.fill_whole(&regions)?;
        for region in regions {
            pieces[&region]
                .iter()
                .try_for_each(|(address, bytes)| self.write_piece(*address, bytes))?;
        }
        Ok(())
    }
}
