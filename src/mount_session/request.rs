//! Arguments of `sfs-mount`, and how the program of an upgrade is started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::control::answer_upgrade;
use crate::handover::reviving;
use crate::monitor::{StartSpec, TakeOver};
use crate::mount_options::MountOptions;
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
    /// `true` if mount(8) asks for the mount, or an initramfs.
    pub is_by_mount: bool,
    /// `true` to treat a kernel that sends requests again as one that does not.
    pub never_sent_again: bool,
}

impl MountRequest {
    /// Returns whether the mount is that of another program, which has died.
    pub(super) fn follows_a_death(&self) -> bool {
        self.take_over.as_ref().is_some_and(|given| given.after_death)
    }

    /// Returns whether the volume is in an object store.
    pub(super) fn is_in_store(&self) -> bool {
        sfs_object::is_store_url(self.device.as_os_str())
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
            store: self.is_in_store().then(|| self.device.clone().into()),
            answer: answer_upgrade,
        }
    }
}
