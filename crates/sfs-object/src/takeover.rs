//! Taking a volume over: claiming an epoch, sealing those before it, and the state that they leave.

use crate::decide::{Decision, decide, settle};
use crate::error::ObjectError;
use crate::frame::{Content, Frame, HEADER_LEN, Manifest, Nonce};
use crate::gallop;
use crate::manifests::{Manifests, Numbered};
use crate::mutant::{Mutant, mutated};
use crate::name::{Epoch, ObjectName};
use crate::presence;
use crate::store::{Object, ObjectStore, PutReply};
use crate::thinning::Thinning;

/// Largest number of seals that are put at once.
const SEALS_AT_ONCE: u64 = 1024;
/// Number of objects that are read at once.
const READS_AT_ONCE: usize = 32;
/// Largest number of log objects that are read at once, beyond the last one at times.
const LOG_READS_AT_ONCE: u64 = 8;
/// Largest number of bytes of log objects that are joined at once. Writers begin to join them much earlier.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// State of a volume, as the newest manifest and the log objects behind it say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Epoch of the manifest and of the log objects.
    pub epoch: Epoch,
    /// Number of the newest manifest.
    pub number: u64,
    /// The newest manifest.
    pub manifest: Manifest,
    /// Contents of the log objects from the manifest's `log_start` on, without a gap.
    pub log: Vec<Vec<u8>>,
}

/// Returns the newest claimed epoch, or 0. Claims are never deleted.
pub(crate) fn newest_claim(
    store: &impl ObjectStore,
    thinning: Thinning,
) -> Result<u64, ObjectError> {
    gallop::largest(thinning.at_once(), |epochs| {
        presence::present(store, epochs, |epoch| ObjectName::Claim(Epoch(epoch)))
    })
}

/// Claims the first free epoch.
pub(crate) fn claim(
    store: &impl ObjectStore,
    nonce: Nonce,
    thinning: Thinning,
) -> Result<Epoch, ObjectError> {
    let mut epoch = Epoch(newest_claim(store, thinning)? + 1);
    loop {
        let frame = Frame { nonce, content: Content::Claim };
        match decide(store, ObjectName::Claim(epoch), frame)? {
            Decision::Ours => return Ok(epoch),
            _ if mutated(Mutant::ClaimShared) => return Ok(epoch),
            Decision::Theirs(_) => epoch.0 += 1,
            // Skipping the number would leave a gap, and hide all epochs behind it.
            Decision::Deleted => return Err(ObjectError::Missing(ObjectName::Claim(epoch))),
        }
    }
}

/// The owner of an epoch, who seals the epochs before it.
pub(crate) struct Sealer<'a, S> {
    pub(crate) store: &'a S,
    pub(crate) nonce: Nonce,
    pub(crate) epoch: Epoch,
    pub(crate) thinning: Thinning,
}

/// Objects before a seal.
struct Sealed {
    /// Number of the lowest seal.
    number: u64,
    /// Objects from the begin of the search to the seal.
    below: Vec<Content>,
}

impl<S: ObjectStore> Sealer<'_, S> {
    /// Seals all epochs back to the newest one with a manifest, and returns its state, or `None` if there is no manifest.
    pub(crate) fn seal_all(&self) -> Result<Option<Recovered>, ObjectError> {
        for epoch in (1..self.epoch.0).rev().map(Epoch) {
            if mutated(Mutant::LogSealedFirst)
                && let Some(Numbered { number, manifest }) = self.manifests(epoch).newest()?
            {
                let log = self.seal_log(epoch, manifest.log_start)?;
                self.seal_manifests(epoch)?;
                return Ok(Some(Recovered { epoch, number, manifest, log }));
            }
            if let Some(Numbered { number, manifest }) = self.seal_manifests(epoch)? {
                let log = self.seal_log(epoch, manifest.log_start)?;
                return Ok(Some(Recovered { epoch, number, manifest, log }));
            }
        }
        Ok(None)
    }

    fn manifests(&self, epoch: Epoch) -> Manifests<'_, S> {
        Manifests::new(self.store, epoch, self.thinning)
    }

    /// Seals the manifests of `epoch`, and returns the newest, which stays the newest.
    fn seal_manifests(&self, epoch: Epoch) -> Result<Option<Numbered>, ObjectError> {
        let manifests = self.manifests(epoch);
        loop {
            let newest = manifests.newest()?;
            if mutated(Mutant::ManifestsUnsealed)
                || (newest.is_none() && mutated(Mutant::UnfinishedUnsealed))
            {
                return Ok(newest);
            }
            let begin = newest.as_ref().map_or(0, |newest| newest.number) + 1;
            let Some(sealed) = self.seal(begin, |number| ObjectName::Manifest(epoch, number))?
            else {
                continue;
            };
            if !mutated(Mutant::SealUnchecked) && manifests.may_be_deleted(sealed.number)? {
                continue;
            }
            return Ok(match sealed.below.into_iter().next_back() {
                Some(Content::Manifest(manifest)) => {
                    Some(Numbered { number: sealed.number - 1, manifest })
                }
                _ => newest,
            });
        }
    }

    /// Seals the log of `epoch`, whose manifests are sealed, and returns the contents of its objects from `begin` on.
    fn seal_log(&self, epoch: Epoch, begin: u64) -> Result<Vec<Vec<u8>>, ObjectError> {
        if mutated(Mutant::LogUnsealed) {
            return read_log(self.store, epoch, begin);
        }
        let sealed = self.seal(begin, |number| ObjectName::Log(epoch, number))?;
        let sealed = sealed.ok_or(ObjectError::Superseded(self.epoch))?;
        Ok(sealed.below.into_iter().filter_map(data).collect())
    }

    /// Puts seals from `begin` on until one holds, or one of others is found, and all numbers below are decided. Returns `None` if a
    /// number on the way was deleted.
    ///
    /// Objects that are in the way are read at the end, so that a quick writer is overtaken.
    fn seal(
        &self,
        begin: u64,
        name: impl Fn(u64) -> ObjectName,
    ) -> Result<Option<Sealed>, ObjectError> {
        let frame = Frame { nonce: self.nonce, content: Content::Seal(self.epoch) };
        let (mut next, mut width) = (begin, 1);
        let end = 'found: loop {
            let seals = (next..next + width).map(name_seal(&frame, &name)).collect::<Vec<_>>();
            let replies = self.store.put_all(&seals)?;
            assert_eq!(replies.len(), seals.len(), "a store answers each PUT");
            for (number, (seal, reply)) in (next..).zip(seals.iter().zip(replies)) {
                if reply == PutReply::Taken && !mutated(Mutant::TakenIsOurs) {
                    continue;
                }
                match settle(self.store, seal, reply)? {
                    Decision::Ours => break 'found number,
                    Decision::Theirs(_) => {}
                    Decision::Deleted => return Ok(None),
                }
            }
            next += width;
            width = (width * 2).min(SEALS_AT_ONCE);
        };
        let names = (begin..end).map(name).collect::<Vec<_>>();
        let (mut below, mut size) = (Vec::new(), LogSize::default());
        'read: for names in names.chunks(READS_AT_ONCE) {
            for (name, bytes) in names.iter().zip(self.store.get_all(names)?) {
                let Some(bytes) = bytes else { return Ok(None) };
                size.add(*name, &bytes)?;
                match Frame::decode(*name, &bytes)?.content {
                    Content::Seal(_) if !mutated(Mutant::SealPassed) => break 'read,
                    content => below.push(content),
                }
            }
        }
        Ok(Some(Sealed { number: begin + below.len() as u64, below }))
    }
}

/// Bytes of objects that are in memory at once, of which there may be more than any writer leaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogSize(u64);

impl LogSize {
    /// Counts an object, with or without its header; an empty one takes memory as well.
    pub(crate) fn add(&mut self, name: ObjectName, bytes: &[u8]) -> Result<(), ObjectError> {
        self.0 += (bytes.len() + HEADER_LEN) as u64;
        if self.0 > LOG_BYTES_MAX { Err(ObjectError::TooMuch(name)) } else { Ok(()) }
    }
}

/// Returns a function that makes the seal of a number.
fn name_seal(frame: &Frame, name: &impl Fn(u64) -> ObjectName) -> impl Fn(u64) -> Object {
    move |number| {
        let name = name(number);
        Object { name, bytes: frame.encode(name) }
    }
}

/// Reads the log objects of `epoch` from `begin` on, up to the first missing number or a seal.
pub(crate) fn read_log(
    store: &impl ObjectStore,
    epoch: Epoch,
    begin: u64,
) -> Result<Vec<Vec<u8>>, ObjectError> {
    let (mut log, mut size) = (Vec::new(), LogSize::default());
    visit_log(store, epoch, begin, |name, content| {
        size.add(name, &content)?;
        log.push(content);
        Ok::<_, ObjectError>(())
    })?;
    Ok(log)
}

/// Calls `visit` for the content of each log object of `epoch` from `begin` on, up to the first missing number or a seal. The more there
/// are, the more are read at once: a writer that goes on is caught up with.
pub(crate) fn visit_log<E: From<ObjectError>>(
    store: &impl ObjectStore,
    epoch: Epoch,
    begin: u64,
    mut visit: impl FnMut(ObjectName, Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut next, mut width) = (begin, 1);
    loop {
        let numbers = next..next + width;
        let names = numbers.map(|number| ObjectName::Log(epoch, number)).collect::<Vec<_>>();
        for (name, bytes) in names.iter().zip(store.get_all(&names).map_err(ObjectError::from)?) {
            let Some(bytes) = bytes else { return Ok(()) };
            let Some(content) = data(Frame::decode(*name, &bytes)?.content) else {
                return Ok(());
            };
            visit(*name, content)?;
        }
        next += width;
        width = (width * 2).min(LOG_READS_AT_ONCE);
    }
}

fn data(content: Content) -> Option<Vec<u8>> {
    match content {
        Content::Data(data) => Some(data),
        _ => None,
    }
}
