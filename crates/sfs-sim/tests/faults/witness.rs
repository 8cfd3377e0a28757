//! A run on a device without faults, which defines the allowed answers of a volume on a faulty device.

use std::ops::ControlFlow;

use sfs_core::format::{DataLayout, FileKind, Inode, ROOT_INO, SEGMENTS_MIN};
use sfs_core::request::VolumeOptions;
use sfs_core::{Error, ResizeError, Volume};
use sfs_device::Device;
use sfs_sim::empty_volume::empty_volume;
use sfs_sim::image::CowImage;
use sfs_sim::model::defragmentation;
use sfs_sim::model::fixture::{after, tight};
use sfs_sim::model::operation::{RunLimits, VolumeOperation, choose};
use sfs_sim::model::random::SplitMix64;
use sfs_sim::model::reference::Reference;
use sfs_sim::recorded_run::{RecordedRun, RunRecorder};

const STEPS: u64 = 360;

/// Recording of a run, with all contents that its files ever had.
pub(crate) struct Witness {
    /// Empty volume that the run begins with.
    pub(crate) base: CowImage,
    pub(crate) recorded: RecordedRun,
    /// Operations of the run.
    pub(crate) operations: Vec<VolumeOperation>,
}

impl Witness {
    pub(crate) fn new(seed: u64) -> Self {
        let base = empty_volume(DataLayout::Log, 34);
        let limits = RunLimits { bytes: 600 << 10, files: 20, reopens: false };
        let mut recorder = RunRecorder::begin(base.clone(), tight(), Reference::new(), 0);
        let mut random = SplitMix64::new(seed);
        let mut operations = Vec::new();
        for _ in 0..STEPS {
            let operation = choose(random.draw(), &recorder.pair.reference, &limits);
            if !matches!(operation, VolumeOperation::List { .. } | VolumeOperation::Seek { .. }) {
                recorder.step(&operation);
                operations.push(operation);
            }
        }
        Self { base, recorded: recorder.end(), operations }
    }

    /// Asserts that every answer of `volume` was true at some time of the run, or is an error that names the
    /// damage. Returns the number of errors.
    pub(crate) fn check(&self, volume: &Volume) -> usize {
        let (mut errors, mut todo) = (0, vec![ROOT_INO]);
        while let Some(ino) = todo.pop() {
            match volume.attributes(ino) {
                Ok(inode) if inode.kind() == FileKind::Directory => {
                    errors += self.check_names(volume, ino, &mut todo);
                }
                Ok(inode) if inode.kind() == FileKind::Regular => {
                    errors += self.check_content(volume, ino, &inode);
                }
                Ok(_) => {}
                Err(error) => errors += count_error(&error),
            }
        }
        errors
    }

    fn check_names(&self, volume: &Volume, ino: u64, todo: &mut Vec<u64>) -> usize {
        let mut found = Vec::new();
        let mut each = |entry: &sfs_core::request::DirectoryEntry<'_>| {
            if entry.cookie > 2 {
                found.push((entry.name.to_vec(), entry.ino));
            }
            true
        };
        if let Err(error) = volume.read_directory(ino, 0, false, &mut each) {
            return count_error(&error);
        }
        for (name, child) in found {
            let had = |reference: &Reference| reference.find(ino, &name).ok() == Some(child);
            let known = self.recorded.states.iter().any(|state| had(&state.reference));
            assert!(known, "{ino}/{} was never inode {child}", name.escape_ascii());
            todo.push(child);
        }
        0
    }

    fn check_content(&self, volume: &Volume, ino: u64, inode: &Inode) -> usize {
        let states = self.recorded.states.iter();
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
                    assert!(known, "block {block} of {ino} never had this content");
                }
                Err(error) => errors += count_error(&error),
            }
        }
        errors
    }

    /// Repeats the run on `device` until an operation fails for good, then checks all answers of the volume.
    ///
    /// # Errors
    ///
    /// The error of the mount or of the failed operation.
    pub(crate) fn repeat(&self, device: std::sync::Arc<dyn Device>) -> Result<(), Error> {
        let volume = Volume::open(device, tight(), after(0))?;
        let mut millis = 0;
        let mut outcome = Ok(());
        for operation in &self.operations {
            millis += 1;
            if let VolumeOperation::Work { millis: more } = operation {
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
        self.check(&volume);
        outcome
    }
}

/// Returns 1; asserts that the error names the corrupt structure or the failed request.
pub(crate) fn count_error(error: &Error) -> usize {
    assert!(matches!(error, Error::Corrupt(_) | Error::Device(_)), "{error:?}");
    1
}

/// Opens the volume on `image` read-only, and checks its answers; returns the number of errors.
///
/// A refused mount has to name the corrupt structure. `sfs-fsck` has to end without a panic.
pub(crate) fn check_image(witness: &Witness, image: &CowImage) -> Result<usize, Error> {
    let mut proceed = |_| ControlFlow::Continue(());
    // The findings do not matter here; a panic fails the test.
    let _ = sfs_fsck::check(image, &sfs_fsck::CheckOptions { data: true }, &mut proceed);
    let options = VolumeOptions { read_only: true, ..tight() };
    match Volume::open(std::sync::Arc::new(image.clone()), options, after(0)) {
        Ok(volume) => Ok(witness.check(&volume)),
        Err(error) => {
            count_error(&error);
            Err(error)
        }
    }
}

fn shrink(volume: &Volume, segments: u32, nonce: u64) -> Result<(), Error> {
    let layout = volume.layout();
    let blocks = layout.blocks_for((layout.segment_count - segments).max(SEGMENTS_MIN));
    match volume.shrink_volume(blocks, nonce) {
        Err(ResizeError::Failed(error)) => Err(error),
        _ => Ok(()),
    }
}

fn grow(volume: &Volume, segments: u32, nonce: u64) -> Result<(), Error> {
    let layout = volume.layout();
    let blocks = layout.blocks_for(layout.segment_count + segments);
    match volume.grow_volume(Some(blocks), nonce) {
        Err(ResizeError::Failed(error)) => Err(error),
        _ => Ok(()),
    }
}

fn perform(volume: &Volume, operation: &VolumeOperation, millis: u64) -> Result<(), Error> {
    let caller =
        sfs_core::request::Caller { uid: 1000, gid: 100, now: after(millis), umask: Some(0o022) };
    match operation {
        VolumeOperation::Make { parent, name, mode, rdev } => {
            volume.make_node(*parent, name, *mode, *rdev, &caller).map(drop)
        }
        VolumeOperation::MakeUnnamed { parent, mode } => {
            volume.make_unnamed(*parent, *mode, &caller).map(drop)
        }
        VolumeOperation::Symlink { parent, name, target } => {
            volume.symlink(*parent, name, target, &caller).map(drop)
        }
        VolumeOperation::Link { ino, parent, name } => {
            volume.link(*ino, *parent, name, &caller).map(drop)
        }
        VolumeOperation::Unlink { parent, name } => volume.unlink(*parent, name, &caller),
        VolumeOperation::RemoveDirectory { parent, name } => {
            volume.remove_directory(*parent, name, &caller)
        }
        VolumeOperation::Rename { from, to, mode } => {
            volume.rename(from.0, &from.1, to.0, &to.1, *mode, &caller).map(drop)
        }
        VolumeOperation::Write { ino, offset, bytes, mode } => {
            volume.write(*ino, *offset, bytes, *mode, &caller)
        }
        VolumeOperation::Allocate { ino, offset, len, allocation } => {
            volume.allocate(*ino, (*offset, *len), allocation, &caller)
        }
        VolumeOperation::Copy { from, to, len, mode } => {
            volume.copy_range(*from, *to, *len, *mode, &caller).map(drop)
        }
        VolumeOperation::SetAttributes { ino, changes } => {
            volume.set_attributes(*ino, changes, &caller).map(drop)
        }
        VolumeOperation::SetXattr { ino, name, value, mode } => {
            volume.set_xattr(*ino, name, value, *mode, &caller)
        }
        VolumeOperation::SetAccessList { ino, kind, value, clear_sgid } => {
            volume.set_access_list(*ino, *kind, value, *clear_sgid, &caller)
        }
        VolumeOperation::RemoveXattr { ino, name } => volume.remove_xattr(*ino, name, &caller),
        VolumeOperation::SetFlags { ino, flags } => volume.set_flags(*ino, *flags, &caller),
        VolumeOperation::Access { ino } => volume.note_access(*ino, caller.now).map(drop),
        VolumeOperation::SyncFile { ino } => volume.sync_file(*ino),
        VolumeOperation::SyncData { ino } => volume.sync_data(*ino),
        VolumeOperation::SyncAll => volume.sync_all(),
        VolumeOperation::Work { .. } => sfs_sim::model::fixture::settle(volume, after(millis)),
        VolumeOperation::Checkpoint => volume.checkpoint().map(drop),
        VolumeOperation::Clean { segments } => {
            volume.clean_round(*segments, &mut || true).map(drop)
        }
        VolumeOperation::Defragment { ino, meanwhile } => {
            let (done, written) =
                defragmentation::defragment(volume, *ino, meanwhile.as_ref(), &caller, || {});
            written.unwrap_or(Ok(())).and(done)
        }
        VolumeOperation::Step => volume.work(after(millis)).map(drop),
        // References to inodes are never dropped, so that inode numbers are assigned as in the run.
        VolumeOperation::Lookup { .. }
        | VolumeOperation::Forget { .. }
        | VolumeOperation::Read { .. } => Ok(()),
        VolumeOperation::SetLabel { label } => volume.set_label(*label),
        VolumeOperation::Grow { segments, nonce } => grow(volume, *segments, *nonce),
        VolumeOperation::Shrink { segments, nonce } => shrink(volume, *segments, *nonce),
        VolumeOperation::Seek { .. }
        | VolumeOperation::List { .. }
        | VolumeOperation::Reopen { .. } => Ok(()),
    }
}
