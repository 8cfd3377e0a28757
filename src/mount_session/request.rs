//! Arguments of `sfs-mount`, and how the program of an upgrade is started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::{initramfs, needed_files};
use crate::control::answer_upgrade;
use crate::exit_error::ExitError;
use crate::handover::reviving;
use crate::monitor::{self, StartSpec, TakeOver};
use crate::mount_options::{MountOptions, SyncPolicy};
use crate::transport::TransportChoice;

/// Arguments of `sfs-mount`.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// Device or image file.
    pub device: PathBuf,
    /// Mount point.
    pub dir: PathBuf,
    /// Options of `-o`.
    pub options: MountOptions,
    /// Transport of requests.
    pub transport: TransportChoice,
    /// `true` if this process serves the mount, instead of returning when the mount answers.
    pub foreground: bool,
    /// `true` if more is logged.
    pub verbose: bool,
    /// `true` if everything is checked, but nothing is mounted.
    pub fake: bool,
    /// The comma lists of options as they were given, for the program of an upgrade.
    pub lists: Vec<String>,
    /// `true` if unknown options are skipped.
    pub sloppy: bool,
    /// Mount that another program hands over to this one.
    pub take_over: Option<TakeOver>,
    /// `true` to treat a kernel that sends requests again as one that does not.
    pub never_sent_again: bool,
}

impl MountRequest {
    /// Returns the request with the transport of a mount that survives its daemon, if it asks for that.
    ///
    /// # Errors
    ///
    /// Another option cannot be combined with `survive`.
    pub(super) fn surviving(&self) -> Result<Self, ExitError> {
        let mut request = self.clone();
        if !self.options.survive {
            return Ok(request);
        }
        let obstacle = match self.transport {
            TransportChoice::Uring => {
                Some("--transport uring: requests on rings end with the daemon")
            }
            TransportChoice::Fuser => Some("--transport fuser"),
            _ if self.foreground => Some("--foreground: its end is taken for that of the mount"),
            _ if !self.options.sandbox => Some("nosandbox: there is no monitor"),
            _ if !self.options.writeback => Some("nowriteback"),
            _ if self.options.sync != SyncPolicy::Never => Some("sync and dirsync"),
            _ if self.options.volume.read_only => Some("ro: nothing is changed"),
            _ if !geteuid().is_root() => Some("the mount of an ordinary user"),
            _ => None,
        };
        if let Some(obstacle) = obstacle {
            return Err(ExitError::usage(format_args!(
                "mount option 'survive' cannot be combined with {obstacle}; leave one of them out"
            )));
        }
        request.transport = TransportChoice::Dev;
        Ok(request)
    }

    /// Returns whether the mount is that of another program, which has died.
    pub(super) fn follows_a_death(&self) -> bool {
        self.take_over.as_ref().is_some_and(|given| given.after_death)
    }

    /// Refuses a mount on `dir` that is to survive its daemon where no daemon could be started again.
    pub(super) fn check_survival_on(&self, dir: &Path) -> Result<(), ExitError> {
        if !self.options.survive {
            return Ok(());
        }
        monitor::check_starting_from_memory().map_err(|reason| {
            ExitError::mount(format_args!(
                "mount option 'survive': {reason}, or leave the option out"
            ))
        })?;
        if initramfs::is_around() {
            return Err(ExitError::mount(
                "mount option 'survive': this program is in an initramfs, which is deleted once the root filesystem is mounted, so that no other daemon could be started; leave the option out",
            ));
        }
        match needed_files::one_below(dir).map_err(ExitError::system)? {
            None => Ok(()),
            Some(path) => Err(ExitError::mount(format_args!(
                "{}: mount option 'survive': {} is needed to start the daemon again, and would be below the mount; leave the option out",
                dir.display(),
                path.display()
            ))),
        }
    }

    /// Returns how a program is started that takes over the mount of the device at `path` on `dir`.
    pub(super) fn start_spec(&self, path: &Path, dir: &Path) -> StartSpec {
        let own = || std::env::current_exe().unwrap_or_default();
        let program = self.take_over.as_ref().map_or_else(own, |given| given.program.clone());
        let mut arguments: Vec<OsString> = vec![path.into(), dir.into()];
        self.lists.iter().for_each(|list| arguments.extend(["-o".into(), list.into()]));
        arguments.extend(["--transport".into(), "dev".into()]);
        arguments.extend(self.verbose.then(|| "--verbose".into()));
        arguments.extend(self.sloppy.then(|| "--sloppy".into()));
        StartSpec {
            program,
            arguments,
            hand_over: reviving::hand_over,
            check_held: reviving::check_held,
            answer: answer_upgrade,
        }
    }
}
