//! A volume together with its reference.
//!
//! Each operation is performed on both. Different results are a panic that names the operation.

use std::sync::Arc;

use sfs_core::format::{ROOT_INO, SEGMENTS_MIN, Timestamp};
use sfs_core::request::{AllocateMode, Caller, FileEntry, VolumeOptions};
use sfs_core::{Error, ResizeError, Resized, Volume};
use sfs_device::Device;

use super::compare;
use super::defragmentation::{WriteMeanwhile, defragment, histories, is_refusal};
use super::fixture::{after, same_kind, settle};
use super::operation::VolumeOperation;
use super::reference::{Reference, ReferenceNode};

/// Volume with its reference and a virtual clock.
pub struct VolumePair {
    /// Device of the volume.
    pub device: Arc<dyn Device>,
    options: VolumeOptions,
    /// Open volume; `None` only during a remount.
    volume: Option<Volume>,
    /// Expected state of the volume.
    pub reference: Reference,
    millis: u64,
    /// Number of segments cleaned before the last remount.
    cleaned_before: u64,
    /// Number of operations that failed for lack of space.
    pub refused: u64,
}

impl VolumePair {
    /// Opens the new, empty volume on `device`.
    pub fn new(device: Arc<dyn Device>, options: VolumeOptions) -> Self {
        Self::with(device, options, Reference::new(), 0)
    }

    /// Opens the volume on `device`, whose content is `reference`, at virtual time `millis`.
    pub fn with(
        device: Arc<dyn Device>,
        options: VolumeOptions,
        reference: Reference,
        millis: u64,
    ) -> Self {
        Self::open(device, options, millis, |_| reference).expect("the volume opens")
    }

    /// Opens the volume on `device`; `reference` makes the reference of the open volume.
    ///
    /// # Errors
    ///
    /// The error of [`Volume::open`].
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

    /// Returns the open volume.
    pub fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("an open volume")
    }

    /// Returns the number of segments cleaned since the first mount.
    pub fn cleaned(&self) -> u64 {
        self.cleaned_before + self.volume().counters().segments_cleaned
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Timestamp {
        after(self.millis)
    }

    /// Performs `operation` on both, and asserts that the results are the same.
    pub fn perform(&mut self, operation: &VolumeOperation) {
        let (done, expected) = self.both(operation);
        match (&done, &expected) {
            (Ok(()), Ok(())) => {}
            (Err(a), Err(b)) if same_kind(a, b) => {}
            _ => panic!("{operation:?}: {done:?}, expected {expected:?}"),
        }
    }

    /// Performs `operation` like [`VolumePair::perform`], but accepts a lack of space if the operation takes space.
    ///
    /// A refused operation must not change the volume.
    pub fn perform_if_room(&mut self, operation: &VolumeOperation) {
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

    /// Performs `operation` on both, and returns the result of the volume and the expected one.
    fn both(&mut self, operation: &VolumeOperation) -> (Result<(), Error>, Result<(), Error>) {
        self.millis += 1;
        let caller = Caller { uid: 1000, gid: 100, now: self.now(), umask: Some(0o022) };
        match operation {
            VolumeOperation::Make { parent, name, mode, rdev } => {
                let made = self.volume().make_node(*parent, name, *mode, *rdev, &caller);
                self.made(made, *parent, name, made_node(*mode, *rdev, &caller), &caller)
            }
            VolumeOperation::MakeUnnamed { parent, mode } => {
                let made = self.volume().make_unnamed(*parent, *mode, &caller);
                let expected =
                    self.reference.live_directory(*parent).and_then(ReferenceNode::may_add);
                if let (Ok(entry), Ok(())) = (&made, &expected) {
                    let node = ReferenceNode::new(0o100_000 | mode & 0o7777, &caller);
                    self.reference.make_unnamed(*parent, entry.ino, node, &caller);
                    compare::attributes(&self.reference, entry.ino, &entry.inode);
                }
                (made.map(drop), expected)
            }
            VolumeOperation::Symlink { parent, name, target } => {
                let made = self.volume().symlink(*parent, name, target, &caller);
                let mut node = ReferenceNode::new(0o120_777, &caller);
                node.target.clone_from(target);
                let node = match target.len() {
                    0 => Err(Error::NotFound),
                    4096.. => Err(Error::NameTooLong),
                    _ => Ok(node),
                };
                self.made(made, *parent, name, node, &caller)
            }
            VolumeOperation::Link { ino, parent, name } => (
                self.volume().link(*ino, *parent, name, &caller).map(drop),
                self.reference.link(*ino, *parent, name, &caller),
            ),
            VolumeOperation::Unlink { parent, name } => (
                self.volume().unlink(*parent, name, &caller),
                self.reference.unlink(*parent, name, &caller),
            ),
            VolumeOperation::RemoveDirectory { parent, name } => match &name[..] {
                b".." => (Ok(()), Ok(())),
                _ => (
                    self.volume().remove_directory(*parent, name, &caller),
                    self.reference.remove_directory(*parent, name, &caller),
                ),
            },
            VolumeOperation::Rename { from, to, mode } => {
                let done = self.volume().rename(
                    from.0,
                    &from.1,
                    to.0,
                    &to.1,
                    *mode,
                    &Caller { umask: None, ..caller },
                );
                let expected =
                    self.reference.rename((from.0, &from.1), (to.0, &to.1), *mode, &caller);
                let has_moved = self.reference.find(from.0, &from.1).is_err();
                if mode.leaves_whiteout() && has_moved && done.is_ok() && expected.is_ok() {
                    let whiteout = self.volume().lookup(from.0, &from.1);
                    let caller = Caller { umask: None, ..caller };
                    let node = made_node(0o020_000, 0, &caller);
                    return self.made(whiteout, from.0, &from.1, node, &caller);
                }
                (done.map(drop), expected)
            }
            VolumeOperation::Write { ino, offset, bytes, mode } => (
                self.volume().write(*ino, *offset, bytes, *mode, &caller),
                self.reference.write(*ino, *offset, bytes, *mode, &caller),
            ),
            VolumeOperation::Allocate { ino, offset, len, allocation } => {
                let done = self.volume().allocate(*ino, (*offset, *len), allocation, &caller);
                // No volume has the space for the longest ranges, which the reference could not store.
                match done {
                    Err(Error::NoSpace) if allocation.mode != AllocateMode::PunchHole => {
                        self.refused += 1;
                        (Ok(()), self.reference.regular(*ino).map(drop))
                    }
                    done => {
                        (done, self.reference.allocate(*ino, *offset, *len, allocation, &caller))
                    }
                }
            }
            VolumeOperation::Copy { from, to, len, mode } => {
                let copied = self.volume().copy_range(*from, *to, *len, *mode, &caller);
                // A copy may be short where a piece of it did not fit.
                let len = *copied.as_ref().unwrap_or(len);
                let expected = self.reference.copy(*from, *to, len, *mode, &caller);
                (copied.map(drop), expected)
            }
            VolumeOperation::SetAttributes { ino, changes } => (
                self.volume().set_attributes(*ino, changes, &caller).map(drop),
                self.reference.set_attributes(*ino, changes, &caller),
            ),
            VolumeOperation::SetXattr { ino, name, value, mode } => (
                self.volume().set_xattr(*ino, name, value, *mode, &caller),
                self.reference.set_xattr(*ino, name, value, *mode, &caller),
            ),
            VolumeOperation::SetAccessList { ino, kind, value, clear_sgid } => (
                self.volume().set_access_list(*ino, *kind, value, *clear_sgid, &caller),
                self.reference.set_access_list(*ino, *kind, value, *clear_sgid, &caller),
            ),
            VolumeOperation::RemoveXattr { ino, name } => (
                self.volume().remove_xattr(*ino, name, &caller),
                self.reference.remove_xattr(*ino, name, &caller),
            ),
            VolumeOperation::Access { ino } => {
                let moved = self.volume().note_access(*ino, caller.now);
                let expected = self.reference.note_access(*ino, caller.now);
                if let (Ok(moved), Ok(expected)) = (&moved, &expected) {
                    assert_eq!(moved, expected, "access to {ino}");
                }
                (moved.map(drop), expected.map(drop))
            }
            VolumeOperation::SetFlags { ino, flags } => (
                self.volume().set_flags(*ino, *flags, &caller),
                self.reference.set_flags(*ino, *flags, &caller),
            ),
            VolumeOperation::Defragment { ino, meanwhile } => {
                self.defragment(*ino, meanwhile.as_ref(), &caller)
            }
            other => (self.look(other), Ok(())),
        }
    }

    /// Puts a file in order. Returns the actual and the expected result of the write meanwhile.
    fn defragment(
        &mut self,
        ino: u64,
        meanwhile: Option<&WriteMeanwhile>,
        caller: &Caller,
    ) -> (Result<(), Error>, Result<(), Error>) {
        let volume = self.volume();
        let mut before = None;
        let note = || _ = before.get_or_insert_with(|| histories(volume, ino));
        let (done, written) = defragment(volume, ino, meanwhile, caller, note);
        let is_regular = self.reference.regular(ino).is_ok();
        match &done {
            Ok(()) => assert!(is_regular, "{ino} is no regular file"),
            Err(Error::NotFound | Error::Invalid) => assert!(!is_regular, "{ino}: {done:?}"),
            Err(error) if is_refusal(volume, error) => {}
            Err(_) => return (done, Ok(())),
        }
        let Some((written, meanwhile)) = written.zip(meanwhile) else {
            if let Some(before) = before.flatten() {
                let after = histories(volume, ino).unwrap_or_else(|| before.clone());
                assert_eq!(after, before, "histories of {ino}");
            }
            return (Ok(()), Ok(()));
        };
        if matches!(written, Err(Error::NoSpace)) {
            self.refused += 1;
            return (Ok(()), Ok(()));
        }
        let WriteMeanwhile { offset, bytes, .. } = meanwhile;
        (written, self.reference.write(ino, *offset, bytes, Default::default(), caller))
    }

    /// Adds a file that the volume made to the reference, and returns the actual and the expected result.
    fn made(
        &mut self,
        made: Result<FileEntry, Error>,
        parent: u64,
        name: &[u8],
        node: Result<ReferenceNode, Error>,
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

    /// Performs an operation that does not change files, except by a remount.
    fn look(&mut self, operation: &VolumeOperation) -> Result<(), Error> {
        match operation {
            VolumeOperation::Lookup { parent, name } => self.lookup(*parent, name),
            VolumeOperation::Forget { ino } => {
                let count = self.reference.forget(*ino);
                self.volume().forget(*ino, count);
            }
            VolumeOperation::Read { ino, offset, len } => {
                compare::read(self.volume(), &self.reference, *ino, *offset, *len);
            }
            VolumeOperation::Seek { ino, offset } => {
                compare::seek(self.volume(), &self.reference, *ino, *offset);
            }
            VolumeOperation::List { ino, seed } => {
                compare::listing(self.volume(), &self.reference, *ino, *seed, self.now());
            }
            VolumeOperation::SyncFile { ino } => self.volume().sync_file(*ino)?,
            VolumeOperation::SyncData { ino } => self.volume().sync_data(*ino)?,
            VolumeOperation::SyncAll => self.volume().sync_all()?,
            VolumeOperation::SetLabel { label } => {
                self.volume().set_label(*label)?;
                self.reference.label = *label;
            }
            VolumeOperation::Grow { segments, nonce } => self.grow(*segments, *nonce)?,
            VolumeOperation::Shrink { segments, nonce } => self.shrink(*segments, *nonce)?,
            VolumeOperation::Checkpoint => {
                let written = self.volume().checkpoint()?;
                assert!(written.device_bytes > 0, "the record at least");
            }
            VolumeOperation::Clean { segments } => {
                if let Some(round) = self.volume().clean_round(*segments, &mut || true)? {
                    assert!(round.segments <= *segments, "{round:?}");
                }
            }
            VolumeOperation::Work { millis } => {
                self.millis += millis;
                settle(self.volume(), self.now())?;
            }
            VolumeOperation::Step => drop(self.volume().work(self.now())?),
            VolumeOperation::Reopen { close } => self.reopen(*close),
            other => unreachable!("{other:?} is performed by `both`"),
        }
        Ok(())
    }

    /// Grows the volume by `segments`, if the device has room for them.
    fn grow(&self, segments: u32, nonce: u64) -> Result<(), Error> {
        let from = self.volume().layout();
        let blocks = from.blocks_for(from.segment_count + segments);
        if blocks > self.device.geometry().block_count {
            return Ok(());
        }
        let total = self.volume().space().total_blocks;
        match self.volume().grow_volume(Some(blocks), nonce) {
            Ok(Resized { to, .. }) => {
                assert_eq!(to.segment_count, from.segment_count + segments);
                assert!(self.volume().space().total_blocks >= total);
                Ok(())
            }
            Err(ResizeError::TooFull) => Ok(()),
            Err(ResizeError::Failed(error)) => Err(error),
            Err(refused) => panic!("a growth that fits is refused: {refused}"),
        }
    }

    /// Shrinks the volume by `segments`, if its content allows that.
    fn shrink(&self, segments: u32, nonce: u64) -> Result<(), Error> {
        let from = self.volume().layout();
        let blocks = from.blocks_for((from.segment_count - segments).max(SEGMENTS_MIN));
        match self.volume().shrink_volume(blocks, nonce) {
            Ok(Resized { to, .. }) => {
                assert!(to.block_count <= from.block_count);
                Ok(())
            }
            Err(ResizeError::TooFull | ResizeError::Occupied { .. } | ResizeError::InPlace) => {
                Ok(())
            }
            Err(ResizeError::Failed(error)) => Err(error),
            Err(refused) => panic!("a shrinking is refused: {refused}"),
        }
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

    /// Remounts the volume, after a close or else after a sync, and compares everything.
    pub fn reopen(&mut self, close: bool) {
        let now = self.now();
        self.cleaned_before = self.cleaned();
        let volume = self.volume.take().expect("an open volume");
        if close {
            volume.close().expect("the volume closes");
        } else {
            volume.sync_all().expect("a sync");
        }
        drop(volume);
        self.reference.forget_all();
        let opened = Volume::open(self.device.clone(), self.options.clone(), now);
        self.volume = Some(opened.expect("the volume opens again"));
        self.compare();
    }

    /// Compares the whole volume with the reference, its usage table with the tree, and the reference counts.
    pub fn compare(&self) {
        compare::everything(self.volume(), &self.reference);
        assert_eq!(self.volume().audit().expect("an audit"), []);
        let referenced: u64 = self.reference.references.values().sum();
        assert_eq!(self.volume().reference_count(), referenced);
        assert!(self.reference.nodes.contains_key(&ROOT_INO));
    }
}

fn made_node(mode: u32, rdev: u32, caller: &Caller) -> Result<ReferenceNode, Error> {
    let kind = mode & 0o170_000;
    if !matches!(kind, 0o100_000 | 0o040_000 | 0o010_000 | 0o020_000 | 0o060_000 | 0o140_000) {
        return Err(Error::Invalid);
    }
    let mut node = ReferenceNode::new(mode, caller);
    node.rdev = if matches!(kind, 0o020_000 | 0o060_000) { rdev } else { 0 };
    Ok(node)
}
