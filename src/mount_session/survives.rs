//! Whether a mount survives its daemon: it does if the user asks for that, or by default where mount(8) mounts and nothing is in
//! the way.

use std::path::Path;

use nix::unistd::geteuid;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use sfs_core::read_superblock;
use sfs_system::memory_limit::{MemoryLimit, available_bytes};

use super::request::MountRequest;
use super::{initramfs, needed_files};
use crate::exit_error::ExitError;
use crate::kernel_release;
use crate::monitor::{self, PrivateRoot};
use crate::mount::OpenedDevice;
use crate::mount_options::SyncPolicy;
use crate::survival::{Areas, MEMORY_BYTES};
use crate::transport::TransportChoice;

/// First kernel that sends the requests of a daemon again that has died. Before it programs would see errors, and the kernel would
/// keep less in its caches; only who asks for that gets it.
const SENT_AGAIN_SINCE: (u32, u32, u32) = (6, 10, 0);

/// Memory of which the records may take a part, so that mounts survive by default.
const MEMORY_MIN_BYTES: u64 = 8 * MEMORY_BYTES;

/// Whether a mount survives its daemon.
pub(super) enum Survival {
    /// It does, with these records.
    Begins(Box<Areas>),
    /// It has survived another daemon.
    GoesOn,
    /// Nobody has asked for it.
    Off,
    /// Something is in the way.
    Impossible(String),
}

/// Root directory of the monitor and of the daemons that follow the first one.
#[derive(Default)]
pub(super) struct RootOfOthers {
    /// `None` if they have that of the first one.
    pub(super) root: Option<PrivateRoot>,
    /// Why there is none, although they need one.
    pub(super) obstacle: Option<String>,
}

impl Survival {
    pub(super) fn is_on(&self) -> bool {
        matches!(self, Self::Begins(_) | Self::GoesOn)
    }
}

impl MountRequest {
    /// Refuses a mount on `dir` that is to survive its daemon and cannot.
    ///
    /// # Errors
    ///
    /// The option `survive` is given, and another option, the directory, or the system is in the way.
    pub(super) fn check_survival(&self, dir: &Path) -> Result<(), ExitError> {
        if self.options.survive != Some(true) {
            return Ok(());
        }
        if let Some(obstacle) = self.option_in_the_way() {
            return Err(ExitError::usage(format_args!(
                "mount option 'survive' cannot be combined with {obstacle}; leave one of them out"
            )));
        }
        place_in_the_way(dir).map_or(Ok(()), |obstacle| Err(refusal(dir, &obstacle)))
    }

    /// Makes a root directory for the monitor and the daemons that follow this one, if the mount on `dir` may survive this process, and
    /// the present root is an initramfs, whose files are deleted.
    ///
    /// # Errors
    ///
    /// There is none, and the option `survive` is given.
    pub(super) fn root_of_others(&self, dir: &Path) -> Result<RootOfOthers, ExitError> {
        let may_survive = || match self.options.survive {
            Some(survives) => survives,
            // Other obstacles are told later.
            None => self.is_by_mount && self.default_obstacle(dir).is_none(),
        };
        if self.take_over.is_some() || !initramfs::is_around() || !may_survive() {
            return Ok(RootOfOthers::default());
        }
        let made = needed_files::libraries().and_then(|files| PrivateRoot::make(dir, &files));
        let error = match made {
            Ok(root) => return Ok(RootOfOthers { root: Some(root), obstacle: None }),
            Err(error) => error,
        };
        let obstacle =
            format!("the files of the initramfs will be deleted, and cannot be kept: {error}");
        match self.options.survive {
            Some(true) => Err(refusal(dir, &obstacle)),
            _ => Ok(RootOfOthers { root: None, obstacle: Some(obstacle) }),
        }
    }

    /// Returns why a mount on `dir` does not survive by default, whatever the volume is.
    fn default_obstacle(&self, dir: &Path) -> Option<String> {
        let limit = MemoryLimit::of_this_process();
        self.option_in_the_way()
            .map(String::from)
            .or_else(|| system_in_the_way(&kernel_release::running(), limit, available_bytes()))
            .or_else(|| place_in_the_way(dir))
    }

    /// Returns whether the mount of `opened` on `dir` survives this process. `obstacle` is that of
    /// [`MountRequest::root_of_others`].
    ///
    /// # Errors
    ///
    /// The option `survive` is given, and the volume is one that cannot survive.
    pub(super) fn survival(
        &self,
        dir: &Path,
        opened: &OpenedDevice,
        obstacle: Option<String>,
    ) -> Result<Survival, ExitError> {
        let obstacle = match self.options.survive {
            // Nothing is changed, and the device cannot be.
            Some(true) if opened.is_write_protected => None,
            Some(true) => volume_in_the_way(opened).map(String::from),
            None if self.is_by_mount => volume_in_the_way(opened)
                .map(String::from)
                .or_else(|| self.default_obstacle(dir))
                .or(obstacle),
            _ => return Ok(Survival::Off),
        };
        let areas = match obstacle {
            Some(obstacle) => Err(obstacle),
            None => Areas::new().map_err(|error| format!("no memory for its records: {error}")),
        };
        match areas {
            Ok(areas) => Ok(Survival::Begins(Box::new(areas))),
            Err(obstacle) if self.options.survive.is_none() => Ok(Survival::Impossible(obstacle)),
            Err(obstacle) => Err(refusal(opened.device.path(), &obstacle)),
        }
    }

    /// Returns what else is asked for that cannot be combined with `survive`.
    fn option_in_the_way(&self) -> Option<&'static str> {
        match self.transport {
            TransportChoice::Uring => {
                Some("--transport uring: requests on rings end with the daemon")
            }
            TransportChoice::Fuser => Some("--transport fuser"),
            _ if self.is_in_store() => {
                Some("the URL of an object store: no other daemon could go on with its local cache")
            }
            _ if self.foreground => Some("--foreground: its end is taken for that of the mount"),
            _ if !self.options.sandbox => Some("nosandbox: there is no monitor"),
            _ if !self.options.writeback => Some("nowriteback"),
            _ if self.options.sync != SyncPolicy::Never => Some("sync and dirsync"),
            _ if self.options.volume.read_only => Some("ro: nothing is changed"),
            _ if self.never_sent_again && self.options.survive.is_none() => {
                Some("requests are not sent again")
            }
            _ if !geteuid().is_root() => Some("the mount of an ordinary user"),
            _ => None,
        }
    }
}

/// Returns the refusal of a mount that is to survive its daemon, because of its directory or device at `path`.
fn refusal(path: &Path, obstacle: &str) -> ExitError {
    let path = path.display();
    ExitError::mount(format_args!(
        "{path}: mount option 'survive': {obstacle}; leave the option out"
    ))
}

/// Returns why no daemon could be started again for a mount on `dir`.
fn place_in_the_way(dir: &Path) -> Option<String> {
    if let Err(reason) = monitor::check_starting_from_memory() {
        return Some(reason);
    }
    if let Err(error) = pidfd_open(getpid(), PidfdFlags::empty()) {
        return Some(format!("the end of a process cannot be waited for: pidfd_open: {error}"));
    }
    match needed_files::one_below(dir) {
        Ok(None) => None,
        Ok(Some(path)) => Some(format!(
            "{} is needed to start the daemon again, and would be below the mount",
            path.display()
        )),
        Err(error) => Some(error.to_string()),
    }
}

/// Returns why another daemon could not go on with the volume.
fn volume_in_the_way(opened: &OpenedDevice) -> Option<&'static str> {
    // Another error is met again when the volume is opened.
    let has_cache = read_superblock(&*opened.device).is_ok_and(|found| found.features.has_cache());
    if has_cache {
        Some("the volume has a cache on an SSD, which no other daemon could go on with")
    } else if opened.options.volume.read_only {
        Some("the volume is read-only, and nothing is changed")
    } else {
        None
    }
}

/// Returns why mounts do not survive by default on a kernel with this `release`, with memory up to `limit` of which `available` bytes
/// are left.
fn system_in_the_way(release: &str, limit: MemoryLimit, available: Option<u64>) -> Option<String> {
    let sends_again =
        kernel_release::parse(release).is_some_and(|version| version >= SENT_AGAIN_SINCE);
    if !sends_again {
        Some(format!("Linux {release} does not send requests again"))
    } else if limit.bytes < MEMORY_MIN_BYTES {
        Some(format!("the {} is low", limit.kind))
    } else if available.is_some_and(|bytes| bytes < MEMORY_MIN_BYTES) {
        Some("little memory is left".into())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_and_little_memory_are_in_the_way_of_the_default() {
        let limit = |bytes| MemoryLimit { bytes, ..MemoryLimit::of_this_process() };
        let much = limit(1 << 40);
        for release in ["6.1.0-50-amd64", "6.9.12", "5.15", "linux"] {
            let obstacle = system_in_the_way(release, much, None);
            assert!(obstacle.is_some_and(|why| why.contains(release)), "{release}");
        }
        for release in ["6.10.0", "6.12.43+deb13-amd64", "7.0"] {
            assert_eq!(system_in_the_way(release, much, None), None);
        }
        assert!(system_in_the_way("6.18", limit(MEMORY_MIN_BYTES - 1), None).is_some());
        assert!(system_in_the_way("6.18", much, Some(MEMORY_MIN_BYTES - 1)).is_some());
        let enough = limit(MEMORY_MIN_BYTES);
        assert_eq!(system_in_the_way("6.18", enough, Some(MEMORY_MIN_BYTES)), None);
    }
}
