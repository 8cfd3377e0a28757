//! A run on an honest device, which says what may ever be read on one that is not.

use std::ops::ControlFlow;

use sfs_core::format::{DataLayout, FileKind, Inode, ROOT_INO};
use sfs_core::request::VolumeOptions;
use sfs_core::{Error, Volume};
use sfs_device::Device;
use sfs_sim::case::fresh;
use sfs_sim::history::{History, Life};
use sfs_sim::image::Image;
use sfs_sim::model::operation::{Limits, Operation, choose};
use sfs_sim::model::random::Random;
use sfs_sim::model::reference::Reference;
use sfs_sim::model::rig::{after, tight};

const STEPS: u64 = 360;

/// What may ever be in the files of a run.
pub(crate) struct Witness {
    /// The empty volume.
    pub(crate) base: Image,
    pub(crate) history: History,
    /// What was done.
    pub(crate) operations: Vec<Operation>,
}

impl Witness {
    pub(crate) fn new(seed: u64) -> Self {
        let base = fresh(DataLayout::Log, 34);
        let limits = Limits { bytes: 600 << 10, files: 20, reopens: false };
        let mut life = Life::begin(base.clone(), tight(), Reference::new(), 0);
        let mut random = Random::new(seed);
        let mut operations = Vec::new();
        for _ in 0..STEPS {
            let operation = choose(random.draw(), &life.pair.reference, &limits);
            if !matches!(operation, Operation::List { .. } | Operation::Seek { .. }) {
                life.step(&operation);
                operations.push(operation);
            }
        }
        Self { base, history: life.end(), operations }
    }

    /// Everything that `volume` answers has been true at some time, or is an error that says what
    /// is wrong. Gives how many answers were errors.
    pub(crate) fn judge(&self, volume: &Volume) -> usize {
        let (mut errors, mut todo) = (0, vec![ROOT_INO]);
        while let Some(ino) = todo.pop() {
            match volume.attributes(ino) {
                Ok(inode) if inode.kind() == FileKind::Directory => {
                    errors += self.judge_names(volume, ino, &mut todo);
                }
                Ok(inode) if inode.kind() == FileKind::Regular => {
                    errors += self.judge_content(volume, ino, &inode);
                }
                Ok(_) => {}
                Err(error) => errors += named(&error),
            }
        }
        errors
    }

    fn judge_names(&self, volume: &Volume, ino: u64, todo: &mut Vec<u64>) -> usize {
        let mut found = Vec::new();
        let mut each = |entry: &sfs_core::request::DirectoryEntry<'_>| {
            if entry.cookie > 2 {
                found.push((entry.name.to_vec(), entry.ino));
            }
            true
        };
        if let Err(error) = volume.read_directory(ino, 0, false, &mut each) {
            return named(&error);
        }
        for (name, child) in found {
            let had = |reference: &Reference| reference.find(ino, &name).ok() == Some(child);
            let known = self.history.states.iter().any(|state| had(&state.reference));
            assert!(known, "{ino} never had {} as {child}", name.escape_ascii());
            todo.push(child);
        }
        0
    }

    fn judge_content(&self, volume: &Volume, ino: u64, inode: &Inode) -> usize {
        let states = self.history.states.iter();
        let mut versions: Vec<_> =
            states.filter_map(|state| state.reference.node(ino).ok()).collect();
        versions.dedup_by(|a, b| std::ptr::eq(*a, *b));
        let mut errors = 0;
        for block in 0..inode.size.div_ceil(4096).min(200) {
            match volume.read(ino, block * 4096, 4096) {
                Ok(bytes) => {
                    let bytes = bytes.as_bytes();
                    let known = versions.iter().any(|version| {
                        version.content.block(block as u32)[..bytes.len()] == *bytes
                    });
                    assert!(known, "block {block} of {ino} never was so");
                }
                Err(error) => errors += named(&error),
            }
        }
        errors
    }

    /// Does what the run did on `device`, until the volume does not go on; gives what it says then,
    /// having judged all that it still answers.
    pub(crate) fn repeat(&self, device: std::sync::Arc<dyn Device>) -> Result<(), Error> {
        let volume = Volume::open(device, tight(), after(0))?;
        let mut millis = 0;
        let mut outcome = Ok(());
        for operation in &self.operations {
            millis += 1;
            if let Operation::Work { millis: more } = operation {
                millis += more;
            }
            match perform(&volume, operation, millis) {
                Err(
                    error @ (Error::Corrupt(_)
                    | Error::Device(_)
                    | Error::ReadOnly
                    | Error::Stopped),
                ) => {
                    outcome = Err(error);
                    break;
                }
                _ => continue,
            }
        }
        self.judge(&volume);
        outcome
    }
}

/// One for an error that names what is corrupt or which request failed; nothing else may happen.
pub(crate) fn named(error: &Error) -> usize {
    assert!(matches!(error, Error::Corrupt(_) | Error::Device(_)), "{error:?}");
    1
}

/// Opens what is on `image` for reading, and judges it; a refusal must say what is corrupt. Then
/// the check must end, too.
pub(crate) fn judge_image(witness: &Witness, image: &Image) -> Result<usize, Error> {
    let mut go_on = |_| ControlFlow::Continue(());
    // Whatever it finds, it must not panic.
    let _ = sfs_fsck::check(image, &sfs_fsck::CheckOptions { data: true }, &mut go_on);
    let options = VolumeOptions { read_only: true, ..tight() };
    match Volume::open(std::sync::Arc::new(image.clone()), options, after(0)) {
        Ok(volume) => Ok(witness.judge(&volume)),
        Err(error) => {
            named(&error);
            Err(error)
        }
    }
}

fn perform(volume: &Volume, operation: &Operation, millis: u64) -> Result<(), Error> {
    let caller = sfs_core::request::Caller { uid: 1000, gid: 100, now: after(millis) };
    match operation {
        Operation::Make { parent, name, mode, rdev } => {
            volume.make_node(*parent, name, *mode, *rdev, &caller).map(drop)
        }
        Operation::MakeUnnamed { parent, mode } => {
            volume.make_unnamed(*parent, *mode, &caller).map(drop)
        }
        Operation::Symlink { parent, name, target } => {
            volume.symlink(*parent, name, target, &caller).map(drop)
        }
        Operation::Link { ino, parent, name } => {
            volume.link(*ino, *parent, name, &caller).map(drop)
        }
        Operation::Unlink { parent, name } => volume.unlink(*parent, name, &caller),
        Operation::RemoveDirectory { parent, name } => {
            volume.remove_directory(*parent, name, &caller)
        }
        Operation::Rename { from, to, mode } => {
            volume.rename(from.0, &from.1, to.0, &to.1, *mode, &caller).map(drop)
        }
        Operation::Write { ino, offset, bytes, mode } => {
            volume.write(*ino, *offset, bytes, *mode, &caller)
        }
        Operation::SetAttributes { ino, changes } => {
            volume.set_attributes(*ino, changes, &caller).map(drop)
        }
        Operation::SetXattr { ino, name, value, mode } => {
            volume.set_xattr(*ino, name, value, *mode, &caller)
        }
        Operation::RemoveXattr { ino, name } => volume.remove_xattr(*ino, name, &caller),
        Operation::SyncFile { ino } => volume.sync_file(*ino),
        Operation::SyncAll => volume.sync_all(),
        Operation::Work { .. } => sfs_sim::model::rig::settle(volume, after(millis)),
        Operation::Step => volume.work(after(millis)).map(drop),
        // Inode numbers stay held: the order of references is the witness's own.
        Operation::Lookup { .. } | Operation::Forget { .. } | Operation::Read { .. } => Ok(()),
        Operation::SetLabel { label } => volume.set_label(*label),
        Operation::Seek { .. } | Operation::List { .. } | Operation::Reopen { .. } => Ok(()),
    }
}
