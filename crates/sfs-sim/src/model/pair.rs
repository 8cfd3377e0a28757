//! A volume and its reference, to which the same things happen.
//!
//! Owns: carrying an operation out on both, and comparing the answers.
//! Promises: whatever the two answer differently is a panic that names the operation.
//! Never: chooses an operation.

use std::sync::Arc;

use sfs_core::format::{ROOT_INO, Timestamp};
use sfs_core::request::{Caller, FileEntry, VolumeOptions};
use sfs_core::{Error, Volume};
use sfs_device::Device;

use super::compare;
use super::operation::Operation;
use super::reference::{Node, Reference};
use super::rig::{after, same_kind, settle};

/// A volume and its reference.
pub struct Pair {
    /// What the volume is on.
    pub device: Arc<dyn Device>,
    options: VolumeOptions,
    /// There always is one, but for a moment while it is opened again.
    volume: Option<Volume>,
    /// What the volume must be like.
    pub reference: Reference,
    millis: u64,
    /// Segments cleaned before the volume was opened last.
    cleaned_before: u64,
    /// Operations that were refused for lack of space.
    pub refused: u64,
}

impl Pair {
    /// A new volume on `device`.
    pub fn new(device: Arc<dyn Device>, options: VolumeOptions) -> Self {
        Self::with(device, options, Reference::new(), 0)
    }

    /// The volume on `device`, which holds `reference`. The clock stands at `millis`.
    pub fn with(
        device: Arc<dyn Device>,
        options: VolumeOptions,
        reference: Reference,
        millis: u64,
    ) -> Self {
        Self::open(device, options, millis, |_| reference).expect("it opens")
    }

    /// The volume on `device`, if it opens; `reference` says what it holds.
    ///
    /// # Errors
    ///
    /// Those of [`Volume::open`].
    pub fn open(
        device: Arc<dyn Device>,
        options: VolumeOptions,
        millis: u64,
        reference: impl FnOnce(&Volume) -> Reference,
    ) -> Result<Self, Error> {
        let volume = Volume::open(device.clone(), options.clone(), after(millis))?;
        let reference = reference(&volume);
        Ok(Self {
            device,
            options,
            volume: Some(volume),
            reference,
            millis,
            cleaned_before: 0,
            refused: 0,
        })
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("an open volume")
    }

    /// Segments cleaned since the beginning.
    pub fn cleaned(&self) -> u64 {
        self.cleaned_before + self.volume().counters().segments_cleaned
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        after(self.millis)
    }

    /// Carries `operation` out on both, and demands the same answer.
    pub fn perform(&mut self, operation: &Operation) {
        let (done, expected) = self.both(operation);
        match (&done, &expected) {
            (Ok(()), Ok(())) => {}
            (Err(a), Err(b)) if same_kind(a, b) => {}
            _ => panic!("{operation:?}: {done:?}, expected {expected:?}"),
        }
    }

    /// As [`Pair::perform`], but an operation that makes something new may be refused for lack of
    /// space; then nothing has changed.
    pub fn perform_if_room(&mut self, operation: &Operation) {
        let before = self.reference.clone();
        let (done, expected) = self.both(operation);
        match (&done, &expected) {
            (Ok(()), Ok(())) => {}
            (Err(a), Err(b)) if same_kind(a, b) => {}
            (Err(Error::NoSpace), _) if operation.takes_space() => {
                self.refused += 1;
                self.reference = before;
            }
            _ => panic!("{operation:?}: {done:?}, expected {expected:?}"),
        }
    }

    /// Carries `operation` out on both; gives what they answer.
    fn both(&mut self, operation: &Operation) -> (Result<(), Error>, Result<(), Error>) {
        self.millis += 1;
        let caller = Caller { uid: 1000, gid: 100, now: self.now() };
        match operation {
            Operation::Make { parent, name, mode, rdev } => {
                let made = self.volume().make_node(*parent, name, *mode, *rdev, &caller);
                self.made(made, *parent, name, made_node(*mode, *rdev, &caller), &caller)
            }
            Operation::MakeUnnamed { parent, mode } => {
                let made = self.volume().make_unnamed(*parent, *mode, &caller);
                let expected = self.reference.live_directory(*parent).map(drop);
                if let (Ok(entry), Ok(())) = (&made, &expected) {
                    let node = Node::new(0o100_000 | mode & 0o7777, &caller);
                    self.reference.make_unnamed(*parent, entry.ino, node);
                    compare::attributes(&self.reference, entry.ino, &entry.inode);
                }
                (made.map(drop), expected)
            }
            Operation::Symlink { parent, name, target } => {
                let made = self.volume().symlink(*parent, name, target, &caller);
                let mut node = Node::new(0o120_777, &caller);
                node.target.clone_from(target);
                let node = match target.len() {
                    0 => Err(Error::NotFound),
                    4096.. => Err(Error::NameTooLong),
                    _ => Ok(node),
                };
                self.made(made, *parent, name, node, &caller)
            }
            Operation::Link { ino, parent, name } => (
                self.volume().link(*ino, *parent, name, &caller).map(drop),
                self.reference.link(*ino, *parent, name, &caller),
            ),
            Operation::Unlink { parent, name } => (
                self.volume().unlink(*parent, name, &caller),
                self.reference.unlink(*parent, name, &caller),
            ),
            Operation::RemoveDirectory { parent, name } => match &name[..] {
                b".." => (Ok(()), Ok(())),
                _ => (
                    self.volume().remove_directory(*parent, name, &caller),
                    self.reference.remove_directory(*parent, name, &caller),
                ),
            },
            Operation::Rename { from, to, mode } => {
                let done = self.volume().rename(from.0, &from.1, to.0, &to.1, *mode, &caller);
                let expected =
                    self.reference.rename((from.0, &from.1), (to.0, &to.1), *mode, &caller);
                let has_moved = self.reference.find(from.0, &from.1).is_err();
                if mode.leaves_whiteout() && has_moved && done.is_ok() && expected.is_ok() {
                    let whiteout = self.volume().lookup(from.0, &from.1);
                    return self.made(
                        whiteout,
                        from.0,
                        &from.1,
                        made_node(0o020_000, 0, &caller),
                        &caller,
                    );
                }
                (done.map(drop), expected)
            }
            Operation::Write { ino, offset, bytes, mode } => (
                self.volume().write(*ino, *offset, bytes, *mode, &caller),
                self.reference.write(*ino, *offset, bytes, *mode, &caller),
            ),
            Operation::SetAttributes { ino, changes } => (
                self.volume().set_attributes(*ino, changes, &caller).map(drop),
                self.reference.set_attributes(*ino, changes, &caller),
            ),
            Operation::SetXattr { ino, name, value, mode } => (
                self.volume().set_xattr(*ino, name, value, *mode, &caller),
                compare::set_xattr(&mut self.reference, *ino, name, value, *mode, &caller),
            ),
            Operation::RemoveXattr { ino, name } => (
                self.volume().remove_xattr(*ino, name, &caller),
                compare::remove_xattr(&mut self.reference, *ino, name, &caller),
            ),
            other => (self.look(other), Ok(())),
        }
    }

    /// A new file, or the reason why there is none.
    fn made(
        &mut self,
        made: Result<FileEntry, Error>,
        parent: u64,
        name: &[u8],
        node: Result<Node, Error>,
        caller: &Caller,
    ) -> (Result<(), Error>, Result<(), Error>) {
        let expected = node.and_then(|node| {
            self.reference.may_make(parent, name)?;
            Ok(node)
        });
        match (made, expected) {
            (Ok(entry), Ok(node)) => {
                self.reference.make(parent, name, entry.ino, node, caller);
                compare::attributes(&self.reference, entry.ino, &entry.inode);
                (Ok(()), Ok(()))
            }
            (made, expected) => (made.map(drop), expected.map(drop)),
        }
    }

    /// What does not change anything that can be seen in the namespace.
    fn look(&mut self, operation: &Operation) -> Result<(), Error> {
        match operation {
            Operation::Lookup { parent, name } => self.lookup(*parent, name),
            Operation::Forget { ino } => {
                let count = self.reference.forget(*ino);
                self.volume().forget(*ino, count);
            }
            Operation::Read { ino, offset, len } => {
                compare::read(self.volume(), &self.reference, *ino, *offset, *len);
            }
            Operation::Seek { ino, offset } => {
                compare::seek(self.volume(), &self.reference, *ino, *offset);
            }
            Operation::List { ino, seed } => {
                compare::listing(self.volume(), &self.reference, *ino, *seed, self.now());
            }
            Operation::SyncFile { ino } => self.volume().sync_file(*ino)?,
            Operation::SyncAll => self.volume().sync_all()?,
            Operation::SetLabel { label } => {
                self.volume().set_label(*label)?;
                self.reference.label = *label;
            }
            Operation::Work { millis } => {
                self.millis += millis;
                settle(self.volume(), self.now())?;
            }
            Operation::Step => drop(self.volume().work(self.now())?),
            Operation::Reopen { close } => self.reopen(*close),
            other => unreachable!("{other:?} is done elsewhere"),
        }
        Ok(())
    }

    fn lookup(&mut self, parent: u64, name: &[u8]) {
        if name == b".." {
            return;
        }
        let found = self.volume().lookup(parent, name);
        match (found, self.reference.find(parent, name)) {
            (Ok(entry), Ok(ino)) => {
                assert_eq!(entry.ino, ino);
                compare::attributes(&self.reference, ino, &entry.inode);
                self.reference.refer(ino);
            }
            (Err(a), Err(b)) if same_kind(&a, &b) => {}
            (found, expected) => panic!("lookup: {found:?}, expected {expected:?}"),
        }
    }

    /// Opens the volume again, and compares everything.
    pub fn reopen(&mut self, close: bool) {
        let now = self.now();
        self.cleaned_before = self.cleaned();
        let volume = self.volume.take().expect("an open volume");
        if close {
            volume.close().expect("it closes");
        } else {
            volume.sync_all().expect("it syncs");
        }
        drop(volume);
        self.reference.forget_all();
        let opened = Volume::open(self.device.clone(), self.options.clone(), now);
        self.volume = Some(opened.expect("it opens again"));
        self.compare();
    }

    /// Compares everything.
    pub fn compare(&self) {
        compare::everything(self.volume(), &self.reference);
        assert_eq!(self.volume().audit().expect("it can be counted"), []);
        let referenced: u64 = self.reference.references.values().sum();
        assert_eq!(self.volume().reference_count(), referenced);
        assert!(self.reference.nodes.contains_key(&ROOT_INO));
    }
}

fn made_node(mode: u32, rdev: u32, caller: &Caller) -> Result<Node, Error> {
    let kind = mode & 0o170_000;
    if !matches!(kind, 0o100_000 | 0o040_000 | 0o010_000 | 0o020_000 | 0o060_000 | 0o140_000) {
        return Err(Error::Invalid);
    }
    let mut node = Node::new(mode, caller);
    node.rdev = if matches!(kind, 0o020_000 | 0o060_000) { rdev } else { 0 };
    Ok(node)
}
