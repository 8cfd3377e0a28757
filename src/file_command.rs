//! `sfs-ctl file`: where the blocks of a file are.
//!
//! A path on a mount is resolved here, with the rights of the caller, and the daemon is asked by inode number alone. So
//! nobody learns about a file through the daemon that he could not reach himself, and the daemon opens no path.

use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use sfs_core::format::{FileKind, ROOT_INO};
use sfs_core::{Error, Volume};
use sfs_system::Human;
use sfs_system::mountinfo::{self, DeviceNumber, MountRecord};

use crate::control::{self, ControlReply, ControlRequest};
use crate::exit_error::{self, ExitError};
use crate::inspect::file_map::{FilePart, FileReport};
use crate::mount;
use crate::stat_report::plain;
use crate::volume_path::{VolumePath, find};

/// Arguments of `sfs-ctl file`.
#[derive(Clone, Debug, clap::Args)]
pub struct FileArguments {
    /// The file; with --inode, the mount point or the device of the volume
    path: PathBuf,
    /// The file with this inode number
    #[arg(short, long, value_name = "NUMBER", conflicts_with = "device")]
    inode: Option<u64>,
    /// Block device or image file, not mounted, in which PATH is looked up
    #[arg(short, long)]
    device: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print all runs
    #[arg(short, long)]
    verbose: bool,
}

/// Returns the text to print.
///
/// # Errors
///
/// [`ExitError`] with a line that names the file and the reason.
pub fn run(arguments: &FileArguments) -> Result<String, ExitError> {
    let FileArguments { path, inode, device, json, verbose } = arguments;
    let shown = path.to_string_lossy().into_owned();
    let report = match (inode, device) {
        (None, None) => {
            let (mount, inode) = on_mount(path)?;
            of_mounted(&mount, inode, shown)?
        }
        (None, Some(device)) => {
            let volume = mount::open_for_reading(unmounted(device)?.as_path())?;
            let inode = look_up(&volume, path)?;
            of_volume(&volume, inode, shown)?
        }
        (Some(inode), _) => match find(path)? {
            VolumePath::Mounted(mount) => of_mounted(&mount, *inode, format!("inode {inode}"))?,
            VolumePath::Device(path) => {
                let volume = mount::open_for_reading(&path)?;
                of_volume(&volume, *inode, format!("inode {inode}"))?
            }
        },
    };
    Ok(match (json, verbose) {
        (true, _) => serde_json::to_string(&report).expect("numbers and texts are JSON"),
        (false, true) => format!("{report:#}"),
        (false, false) => report.to_string(),
    })
}

/// Returns the mount of SFS that the file at `path` is on, and the inode number of the file.
fn on_mount(path: &Path) -> Result<(MountRecord, u64), ExitError> {
    let shown = path.display();
    let file = fs::metadata(path).map_err(|error| {
        ExitError::usage(format_args!("{shown}: {}", exit_error::reason(&error)))
    })?;
    let mount = mount_of(path, &file)?;
    if !file.is_file() {
        let kind = if file.is_dir() { "a directory" } else { "no regular file" };
        return Err(without_blocks(path, kind));
    }
    Ok((mount, file.ino()))
}

/// Returns the mount of SFS that `file`, with this path, is on.
pub(crate) fn mount_of(path: &Path, file: &fs::Metadata) -> Result<MountRecord, ExitError> {
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let mount = mountinfo::of_number(DeviceNumber { major, minor })
        .map_err(|error| ExitError::system(format_args!("/proc/self/mountinfo: {error}")))?;
    let mount = mount.filter(MountRecord::is_sfs);
    mount.ok_or_else(|| ExitError::mount(format_args!("{}: not on an SFS volume", path.display())))
}

fn without_blocks(path: &Path, kind: &str) -> ExitError {
    let shown = path.display();
    ExitError::usage(format_args!("{shown}: is {kind}; only regular files have blocks"))
}

/// Returns the path of a device that is not mounted.
fn unmounted(device: &Path) -> Result<PathBuf, ExitError> {
    match find(device)? {
        VolumePath::Device(path) => Ok(path),
        VolumePath::Mounted(mount) => Err(ExitError::mount(format_args!(
            "{}: is mounted on {}; give the path of the file there",
            device.display(),
            mount.dir.display()
        ))),
    }
}

/// Finds `path`, from the root of the volume.
fn look_up(volume: &Volume, path: &Path) -> Result<u64, ExitError> {
    let shown = path.display();
    let (mut ino, mut kind) = (ROOT_INO, FileKind::Directory);
    for component in path.components() {
        let name = match component {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => name.as_bytes(),
            _ => {
                return Err(ExitError::usage(format_args!(
                    "{shown}: a path without '..' is needed"
                )));
            }
        };
        let found = volume.lookup(ino, name).map_err(|error| match error {
            Error::NotFound => ExitError::usage(format_args!("{shown}: not found on the volume")),
            Error::NotDirectory => {
                ExitError::usage(format_args!("{shown}: not a directory on the way"))
            }
            error => ExitError::mount(format_args!("{shown}: {error}")),
        })?;
        (ino, kind) = (found.ino, found.inode.kind());
    }
    match kind {
        FileKind::Regular => Ok(ino),
        FileKind::Directory => Err(without_blocks(path, "a directory")),
        FileKind::Symlink => Err(without_blocks(path, "a symbolic link")),
        _ => Err(without_blocks(path, "no regular file")),
    }
}

fn of_mounted(mount: &MountRecord, inode: u64, shown: String) -> Result<FileReport, ExitError> {
    read_all(inode, shown, |from| {
        match control::ask(mount, &ControlRequest::FileBlocks { inode, from })? {
            ControlReply::FileBlocks(part) => Ok(part),
            _ => Err(control::unknown_reply(mount)),
        }
    })
}

fn of_volume(volume: &Volume, inode: u64, shown: String) -> Result<FileReport, ExitError> {
    let name = shown.clone();
    read_all(inode, shown, |from| {
        FilePart::of(volume, inode, from).map_err(|error| match error {
            Error::Invalid => without_blocks(Path::new(&name), "no regular file"),
            Error::NotFound => ExitError::usage(format_args!("{name}: not found on the volume")),
            error => ExitError::mount(format_args!("{name}: {error}")),
        })
    })
}

/// Puts the parts of a map together.
fn read_all(
    inode: u64,
    shown: String,
    part_from: impl Fn(u32) -> Result<FilePart, ExitError>,
) -> Result<FileReport, ExitError> {
    let first = part_from(0)?;
    let mut next = first.next;
    let mut report = FileReport::begin(shown, inode, first);
    while let Some(from) = next {
        let part = part_from(from)?;
        // A daemon of another user must not keep this program in a loop.
        next = part.next.filter(|next| *next > from);
        report.add(part);
    }
    Ok(report.finish())
}

/// Prints the summary, and with `{:#}` every run.
impl fmt::Display for FileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, blocks) = (Human(self.size_bytes), Human(self.blocks * self.block_bytes));
        writeln!(f, "{}: inode {}, {size}, {blocks} on the device", plain(&self.path), self.inode)?;
        if self.inline {
            writeln!(f, "  inline      the content is in the tree, and has no blocks")?;
        }
        if let (Some(mean), Some(share)) = (self.mean_run_bytes, self.fragmentation) {
            let percent = 100.0 * share;
            writeln!(
                f,
                "  runs        {}, {} on average; {percent:.1}% of neighbouring blocks are apart",
                self.run_count,
                Human(mean)
            )?;
        }
        let sum = |ranges: &[crate::inspect::file_map::FileRange]| {
            Human(ranges.iter().map(|range| range.length_bytes).sum())
        };
        if !self.holes.is_empty() {
            writeln!(f, "  holes       {}, {}", self.holes.len(), sum(&self.holes))?;
        }
        if !self.preallocated.is_empty() {
            let count = self.preallocated.len();
            writeln!(f, "  reserved    {count} preallocated ranges, {}", sum(&self.preallocated))?;
        }
        if self.dirty_blocks > 0 {
            let dirty = Human(self.dirty_blocks * self.block_bytes);
            writeln!(f, "  dirty       {dirty} not written yet")?;
        }
        if f.alternate() { self.fmt_runs(f) } else { Ok(()) }
    }
}

impl FileReport {
    fn fmt_runs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.runs.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "{:>16} {:>9} {:>13} {:>9} {:>6}  STATE",
            "OFFSET", "BLOCKS", "ADDRESS", "SEGMENT", "GROUP"
        )?;
        for run in &self.runs {
            let number =
                |number: Option<u32>| number.map_or("-".into(), |number| number.to_string());
            writeln!(
                f,
                "{:>16} {:>9} {:>13} {:>9} {:>6}  {}",
                run.offset_bytes,
                run.blocks,
                run.address,
                number(run.segment),
                number(run.group.map(u32::from)),
                run.state.as_deref().map_or("-".into(), plain)
            )?;
        }
        Ok(())
    }
}
