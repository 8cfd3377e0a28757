//! `sfs-ctl stat`: the numbers of a volume, mounted or not.
//!
//! Owns: where they come from: the daemon of a mount, or the device itself.
//! Promises: a device that is not mounted is read only, and nothing is written to it.
//! Never: asks a mount through the tree: it may not answer.

mod errors;
mod report;
mod text;

use std::path::Path;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::request::VolumeOptions;
use sfs_device::{Access, FileDevice, OpenErrorKind};

use crate::attributes::now;
use crate::control::{Client, Reply, Request};
use crate::mountinfo::{self, MountLine};
use crate::{Failure, mount};

pub use report::Report;

/// The numbers of the volume at `path`: where it is mounted, or its device.
pub fn stat(path: &Path) -> Result<Report, Failure> {
    let shown = path.display();
    let path = path
        .canonicalize()
        .map_err(|error| Failure::usage(format_args!("{shown}: {}", mount::reason(&error))))?;
    let mounts = mountinfo::mounts()
        .map_err(|error| Failure::system(format_args!("/proc/self/mountinfo: {error}")))?;
    let is_it = |mount: &&MountLine| {
        mount.dir == path || mount.kind.starts_with("fuse") && mount.source == path
    };
    match mounts.iter().rev().find(is_it) {
        Some(mount) if mount.is_volume() => of_mounted(mount),
        Some(_) => Err(Failure::mount(format_args!("{shown}: not an SFS volume"))),
        None if path.is_dir() => Err(Failure::usage(format_args!("{shown}: not a mount point"))),
        None => of_device(&path),
    }
}

fn of_mounted(mount: &MountLine) -> Result<Report, Failure> {
    let shown = mount.dir.display();
    let client = Client::connect(mount);
    match client.and_then(|client| client.ask(&Request::Status)) {
        Ok(Reply::Status(report)) => {
            let dir = mount.dir.to_string_lossy().into_owned();
            Ok(Report { mount_point: Some(dir), read_only: mount.is_read_only(), ..*report })
        }
        Ok(Reply::Failed { status, line }) => Err(Failure::with_status(status, line)),
        Ok(_) => Err(Failure::mount(format_args!("{shown}: its daemon answers something else"))),
        Err(trouble) => Err(Failure::mount(format_args!("{shown}: {trouble}"))),
    }
}

fn of_device(path: &Path) -> Result<Report, Failure> {
    let device = FileDevice::open(path, Access::ReadOnly).map_err(|error| match error.kind {
        OpenErrorKind::Permission => Failure::usage(&error),
        OpenErrorKind::Busy => Failure::mount(format_args!(
            "{error}; if SFS is mounted in another namespace, ask there"
        )),
        _ => Failure::mount(&error),
    })?;
    let device = Arc::new(device);
    let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, now())
        .map_err(|error| crate::session::explain(&error, path, &device))?;
    Ok(Report::of_device(&volume, &path.to_string_lossy()))
}
