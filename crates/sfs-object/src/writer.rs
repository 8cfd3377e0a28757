//! The writer of a volume: one epoch, from its claim to the seal of another writer.

use std::cell::{Cell, RefCell};
use std::iter;

use crate::decide::{Decision, decide_all, settle};
use crate::error::ObjectError;
use crate::frame::{Content, Frame, HEADER_LEN, Manifest, Nonce, encode_data};
use crate::mutant::{Mutant, mutated};
use crate::name::{Epoch, ObjectName};
use crate::store::{Object, ObjectStore};
use crate::takeover::{self, Recovered, Sealer};
use crate::thinning::Thinning;

/// A log object that the writer has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogObject(pub ObjectName);

/// An epoch that was claimed, whose owner has sealed nothing yet: whoever has the volume is not disturbed.
pub struct Claim<S> {
    store: S,
    nonce: Nonce,
    epoch: Epoch,
    thinning: Thinning,
}

impl<S: ObjectStore> Claim<S> {
    /// Claims the first free epoch. `nonce` is used as for [`Writer::take_over`].
    pub fn new(store: S, nonce: Nonce, thinning: Thinning) -> Result<Self, ObjectError> {
        let epoch = takeover::claim(&store, nonce, thinning)?;
        Ok(Self { store, nonce, epoch, thinning })
    }

    /// Seals the epochs before this one, and returns the state that they leave, as [`Writer::take_over`] does.
    pub fn seal(self) -> Result<(Writer<S>, Option<Recovered>), ObjectError> {
        let Self { store, nonce, epoch, thinning } = self;
        let recovered = Sealer { store: &store, nonce, epoch, thinning }.seal_all()?;
        let (manifests, log, data) = (0, 0, 0);
        Ok((
            Writer { store, nonce, epoch, thinning, manifests, log, data, failure: None },
            recovered,
        ))
    }
}

/// An object that is to be stored.
pub(crate) enum Upload<C> {
    /// The next data object, with this content.
    Data(C),
    /// The next log object. No other is under way, and what it names is stored.
    Log(Vec<u8>),
}

/// Objects that are stored one after the other, many under way.
pub(crate) trait Uploads {
    /// Content of a data object.
    type Content: AsRef<[u8]>;

    /// Returns what is to be stored next, if there is something at the moment. A data object gets the number `data`.
    fn next(&mut self, data: (Epoch, u64)) -> Option<Upload<Self::Content>>;

    /// Notes that an object is stored.
    fn stored(&mut self, name: ObjectName);
}

/// One data object.
struct Once<'a>(Option<&'a [u8]>);

impl<'a> Uploads for Once<'a> {
    type Content = &'a [u8];

    fn next(&mut self, _: (Epoch, u64)) -> Option<Upload<Self::Content>> {
        self.0.take().map(Upload::Data)
    }

    fn stored(&mut self, _: ObjectName) {}
}

/// The owner of an epoch.
///
/// Nothing may be appended before the first manifest is confirmed. After an error every call returns it again: names may be bound to bytes
/// of which nobody knows whether they are stored, so the volume goes on only in an epoch of its own.
pub struct Writer<S> {
    store: S,
    nonce: Nonce,
    epoch: Epoch,
    thinning: Thinning,
    /// Number of confirmed manifests.
    manifests: u64,
    log: u64,
    data: u64,
    failure: Option<ObjectError>,
}

impl<S: ObjectStore> Writer<S> {
    /// Claims an epoch, seals those before it, and returns the state that they leave: `None` if the volume has none yet.
    ///
    /// `nonce` is drawn for this call, and never used again, also not after a crash. The state may be served or changed only after
    /// [`Writer::publish`] has confirmed it: another writer may have sealed this epoch meanwhile.
    pub fn take_over(
        store: S,
        nonce: Nonce,
        thinning: Thinning,
    ) -> Result<(Self, Option<Recovered>), ObjectError> {
        Claim::new(store, nonce, thinning)?.seal()
    }

    /// Returns the epoch of this writer.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the number of manifests that are confirmed, which is that of the newest.
    pub fn manifests(&self) -> u64 {
        self.manifests
    }

    /// Returns the number of the next log object.
    pub fn next_log(&self) -> u64 {
        self.log + 1
    }

    /// Stores log objects with these contents, all at once, and returns when all are part of the volume.
    ///
    /// After an error some may be: those before the first one that is not ours.
    ///
    /// # Errors
    ///
    /// [`ObjectError::TakenOver`] or [`ObjectError::Superseded`] if another writer has the volume, and then at every later call.
    pub fn append(&mut self, contents: &[&[u8]]) -> Result<Vec<LogObject>, ObjectError> {
        assert!(self.manifests > 0, "a log object before the first manifest is lost");
        if contents.is_empty() {
            return Ok(Vec::new());
        }
        let names = (self.next_log()..).map(|number| ObjectName::Log(self.epoch, number));
        let frames = names.zip(contents).map(|(name, content)| (name, self.data(content)));
        let frames = frames.collect::<Vec<_>>();
        self.store_all(&frames)?;
        self.log += frames.len() as u64;
        Ok(frames.iter().map(|(name, _)| LogObject(*name)).collect())
    }

    /// Stores an object that no one reads before a manifest or a log object names it.
    pub fn put_data(&mut self, content: &[u8]) -> Result<ObjectName, ObjectError> {
        self.store_each(&mut Once(Some(content)), content.len())?;
        Ok(ObjectName::Data(self.epoch, self.data))
    }

    /// Stores objects as they come, while fewer than `bytes_at_once` are under way, until there is none.
    pub(crate) fn store_each(
        &mut self,
        uploads: &mut impl Uploads,
        bytes_at_once: usize,
    ) -> Result<(), ObjectError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let (store, epoch, nonce, manifests) =
            (&self.store, self.epoch, self.nonce, self.manifests);
        let (data, log) = (Cell::new(self.data), Cell::new(self.log));
        let is_log_under_way = Cell::new(false);
        let uploads = RefCell::new(uploads);
        let object = |name, content: &[u8]| {
            let memory = store.spare(HEADER_LEN + content.len());
            Object { name, bytes: encode_data(name, nonce, content, memory) }
        };
        let next = || {
            Some(match uploads.borrow_mut().next((epoch, data.get() + 1))? {
                Upload::Data(content) => {
                    data.set(data.get() + 1);
                    object(ObjectName::Data(epoch, data.get()), content.as_ref())
                }
                Upload::Log(content) => {
                    assert!(manifests > 0, "a log object before the first manifest is lost");
                    assert!(
                        !is_log_under_way.replace(true),
                        "log objects are acknowledged in order"
                    );
                    object(ObjectName::Log(epoch, log.get() + 1), &content)
                }
            })
        };
        let mut stored = |name| {
            if matches!(name, ObjectName::Log(..)) {
                log.set(log.get() + 1);
                is_log_under_way.set(false);
            }
            uploads.borrow_mut().stored(name);
        };
        let mut objects = iter::from_fn(next).peekable();
        let mut result = Ok(());
        while result.is_ok() && objects.peek().is_some() {
            let open = store.put_each(&mut objects, bytes_at_once, &mut stored);
            result = open.map_err(Into::into).and_then(|open| {
                open.iter().try_for_each(|(object, reply)| {
                    settle(store, object, *reply).and_then(|is| check(epoch, is))?;
                    stored(object.name);
                    Ok(())
                })
            });
        }
        drop(objects);
        (self.data, self.log) = (data.get(), log.get());
        self.failure = result.err();
        result
    }

    /// Publishes a state that contains all log objects before `log_start`, which is at most [`Writer::next_log`]. Returns manifests
    /// that are not needed any more.
    ///
    /// They, and log objects and joined ones that only earlier states name, may be deleted after the grace time: longer than a PUT can be
    /// under way, and than a reader needs for what it has opened.
    pub fn publish(
        &mut self,
        log_start: u64,
        state: Vec<u8>,
    ) -> Result<Vec<ObjectName>, ObjectError> {
        assert!(log_start <= self.next_log(), "the state would contain undecided log objects");
        let name = ObjectName::Manifest(self.epoch, self.manifests + 1);
        let content = Content::Manifest(Manifest { log_start, state });
        self.store_all(&[(name, Frame { nonce: self.nonce, content })])?;
        self.manifests += 1;
        let unneeded = self.thinning.deletable_after(self.manifests).into_iter();
        Ok(unneeded.map(|number| ObjectName::Manifest(self.epoch, number)).collect())
    }

    /// Stores objects, and succeeds if all names are ours.
    fn store_all(&mut self, frames: &[(ObjectName, Frame)]) -> Result<(), ObjectError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let result = decide_all(&self.store, frames).and_then(|decisions| {
            let last = frames.len() - 1;
            let checked = decisions
                .into_iter()
                .enumerate()
                .filter(|(index, _)| *index == last || !mutated(Mutant::AcknowledgedOutOfOrder));
            checked.into_iter().try_for_each(|(_, decision)| check(self.epoch, decision))
        });
        self.failure = result.err();
        result
    }

    fn data(&self, content: &[u8]) -> Frame {
        Frame { nonce: self.nonce, content: Content::Data(content.to_vec()) }
    }
}

/// Returns an error if a name of this epoch is not ours.
fn check(epoch: Epoch, decision: Decision) -> Result<(), ObjectError> {
    match decision {
        Decision::Ours => Ok(()),
        Decision::Theirs(Frame { nonce, content: Content::Seal(by) }) => {
            Err(ObjectError::TakenOver { epoch, by, nonce })
        }
        Decision::Theirs(Frame { nonce, .. }) => {
            Err(ObjectError::TakenOver { epoch, by: epoch, nonce })
        }
        Decision::Deleted => Err(ObjectError::Superseded(epoch)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{PutReply, Stopped};

    /// An empty store that can be made to answer nothing.
    #[derive(Default)]
    struct Outage {
        is_stopped: Cell<bool>,
        puts: Cell<u32>,
    }

    impl ObjectStore for Outage {
        fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
            self.puts.set(self.puts.get() + 1);
            if self.is_stopped.get() {
                Err(Stopped)
            } else {
                Ok(vec![PutReply::Stored; objects.len()])
            }
        }

        fn get(&self, _: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
            Ok(None)
        }

        fn delete(&self, _: ObjectName) -> Result<(), Stopped> {
            Ok(())
        }
    }

    /// A name that was tried may be bound to its bytes: no other bytes may follow, and no acknowledgement.
    #[test]
    fn a_writer_that_was_stopped_writes_nothing_more() {
        let store = Outage::default();
        let (mut writer, recovered) =
            Writer::take_over(&store, Nonce([1; 16]), Thinning::OF_VOLUMES).expect("a free epoch");
        assert_eq!(recovered, None);
        writer.publish(1, Vec::new()).expect("a manifest");
        store.is_stopped.set(true);
        assert_eq!(writer.append(&[b"lost"]), Err(Stopped.into()));
        store.is_stopped.set(false);
        let puts = store.puts.get();
        assert_eq!(writer.append(&[b"other"]), Err(Stopped.into()));
        assert_eq!(writer.publish(1, Vec::new()), Err(Stopped.into()));
        assert_eq!(writer.put_data(b"other"), Err(Stopped.into()));
        assert_eq!(store.puts.get(), puts);
    }

    #[test]
    #[should_panic(expected = "before the first manifest")]
    fn nothing_is_appended_before_a_manifest_is_confirmed() {
        let store = Outage::default();
        let (mut writer, _) =
            Writer::take_over(&store, Nonce([1; 16]), Thinning::OF_VOLUMES).expect("a free epoch");
        store.is_stopped.set(true);
        let _ = writer.publish(1, Vec::new());
        let _ = writer.append(&[b"lost"]);
    }
}
