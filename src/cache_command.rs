//! `sfs-ctl cache`: the SSD cache of a volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sfs_cache::PolicyName;
use sfs_core::Volume;
use sfs_core::format::DataLayout;
use sfs_core::request::VolumeOptions;
use sfs_device::{Access, FileDevice};
use sfs_mkfs::{CacheDevice, Human, SectionSize};
use uuid::Uuid;

use crate::control::{self, CacheRequest, ControlReply, ControlRequest};
use crate::exit_error::ExitError;
use crate::file_clock;
use crate::mount;
use crate::volume_path::{VolumePath, find};

/// A command of `sfs-ctl cache`.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum CacheCommand {
    /// Prints hits, content and wear of the cache of a mounted volume. Root may query every mount, other users only their own
    Stat {
        /// Mount point or device of the volume
        path: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Writes what was read lately, and waits in memory, to the SSD
    Flush {
        /// Mount point or device of the volume
        path: PathBuf,
    },
    /// Makes the volume one without a cache, mounted or not. Nothing is lost, and the SSD is free for other use
    Detach {
        /// Mount point, block device or image file of the volume
        path: PathBuf,
    },
    /// Makes an SSD the cache of a volume that is not mounted
    Attach {
        /// Overwrite the content of the SSD
        #[arg(short, long)]
        force: bool,
        /// Section of the cache, as for sfs-mkfs
        #[arg(long = "section", value_name = "SIZE:EXTENT")]
        sections: Vec<SectionSize>,
        /// Device or image file of the cache
        ssd: PathBuf,
        /// Block device or image file of the volume
        device: PathBuf,
    },
}

/// Runs the command, and returns the text to print.
///
/// # Errors
///
/// [`ExitError`] with a line that names the volume and the reason.
pub fn run(command: &CacheCommand) -> Result<String, ExitError> {
    match command {
        CacheCommand::Stat { path, json } => stat(path, *json),
        CacheCommand::Flush { path } => {
            ask(path, CacheRequest::Flush)?;
            Ok(format!("{}: what was read lately is on the SSD", path.display()))
        }
        CacheCommand::Detach { path } => detach(path),
        CacheCommand::Attach { force, sections, ssd, device } => {
            attach(ssd, device, *force, sections)
        }
    }
}

fn stat(path: &Path, json: bool) -> Result<String, ExitError> {
    let ControlReply::Cache(report) = ask(path, CacheRequest::Stat)? else {
        return Err(ExitError::system("the daemon has given another reply"));
    };
    match json {
        true => serde_json::to_string(&report).map_err(ExitError::system),
        false => Ok(report.to_string()),
    }
}

fn ask(path: &Path, request: CacheRequest) -> Result<ControlReply, ExitError> {
    match find(path)? {
        VolumePath::Mounted(mount) => {
            match control::ask(&mount, &ControlRequest::Cache(request))? {
                reply @ (ControlReply::Cache(_) | ControlReply::CacheDetached) => Ok(reply),
                _ => Err(control::unknown_reply(&mount)),
            }
        }
        VolumePath::Device(path) => {
            Err(ExitError::usage(format_args!("{}: is not mounted", path.display())))
        }
    }
}

fn detach(path: &Path) -> Result<String, ExitError> {
    match find(path)? {
        VolumePath::Mounted(_) => drop(ask(path, CacheRequest::Detach)?),
        VolumePath::Device(path) => with_volume(&path, |volume| volume.set_cache(None))?,
    }
    Ok(format!("{}: has no cache any more", path.display()))
}

fn attach(
    ssd: &Path,
    device: &Path,
    force: bool,
    sections: &[SectionSize],
) -> Result<String, ExitError> {
    let VolumePath::Device(path) = find(device)? else {
        let shown = device.display();
        return Err(ExitError::usage(format_args!("{shown}: is mounted; unmount it first")));
    };
    let opened = CacheDevice::open((ssd, &path), force, sections, PolicyName::default());
    let opened = opened.map_err(ExitError::mount)?;
    let cache_uuid = Uuid::new_v4().into_bytes();
    let mut volume_uuid = [0; 16];
    with_volume(&path, |volume| {
        volume_uuid = volume.superblock().uuid;
        volume.set_cache(Some(cache_uuid))
    })?;
    let made = opened.make((volume_uuid, cache_uuid)).map_err(ExitError::mount)?;
    Ok(format!("{}: has a cache of {} on {}", device.display(), Human(made.capacity), made.device))
}

/// Opens the volume on `path`, makes `change`, and closes the volume.
fn with_volume(
    path: &Path,
    change: impl FnOnce(&Volume) -> sfs_core::Result<()>,
) -> Result<(), ExitError> {
    sfs_mkfs::refuse_in_use(path).map_err(ExitError::mount)?;
    let device = FileDevice::open(path, Access::ReadWrite).map_err(ExitError::mount)?;
    let device = Arc::new(device);
    let shown = path.display();
    let volume = Volume::open(device.clone(), VolumeOptions::default(), file_clock::now())
        .map_err(|error| mount::explain(&error, path, &device))?;
    if volume.superblock().data_layout != DataLayout::Log {
        return Err(ExitError::mount(format_args!(
            "{shown}: its data is overwritten in place, and nothing on the disk tells which copy is newer; \
             only a volume with the layout log can have a cache"
        )));
    }
    let changed = change(&volume).and_then(|()| volume.close());
    changed.map_err(|error| ExitError::mount(format_args!("{shown}: {error}")))
}
