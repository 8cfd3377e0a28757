//! The files that the daemon may still open, by Landlock.
//!
//! Descriptors that are open stay usable. A rule is made for the file itself, not for its path: another file that comes to the
//! path later is not allowed. Landlock also forbids mounts, access to other processes as of a debugger, signals to them, abstract
//! sockets and connections over TCP, as far as the kernel's version of it knows these.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{Mode, OFlags, open};

/// Use of a file, or of the files below a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileUse {
    /// Reading files.
    Read,
    /// Reading and writing files, and ioctl(2) of devices.
    Write,
    /// Removing files from the directory.
    Remove,
}

impl FileUse {
    fn access(self) -> BitFlags<AccessFs> {
        match self {
            Self::Read => AccessFs::ReadFile.into(),
            Self::Write => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
            Self::Remove => AccessFs::RemoveFile.into(),
        }
    }
}

/// Files that are needed after the mount.
#[derive(Debug, Default)]
pub(crate) struct NeededFiles(Vec<(OwnedFd, FileUse)>);

impl NeededFiles {
    /// Adds the file or directory at `path`. A file that does not exist is not needed.
    pub(crate) fn add(&mut self, path: &Path, usage: FileUse) {
        if let Ok(file) = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            self.0.push((file, usage));
        }
    }

    /// Forbids this thread to open other files.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the kernel has no Landlock, or it is off.
    pub(super) fn enforce(&self) -> io::Result<()> {
        // Later rights would forbid the connection to the system's log, whose socket may be made anew.
        let ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(ABI::V5))
            .and_then(|rules| rules.handle_access(AccessNet::from_all(ABI::V4)))
            .and_then(|rules| rules.scope(Scope::from_all(ABI::V6)))
            .and_then(Ruleset::create)
            .map_err(io::Error::other)?;
        let add = |rules: landlock::RulesetCreated, (file, usage): &(OwnedFd, FileUse)| {
            rules.add_rule(PathBeneath::new(file, usage.access()))
        };
        let enforced = self.0.iter().try_fold(ruleset, add).and_then(|rules| rules.restrict_self());
        match enforced.map_err(io::Error::other)?.ruleset {
            RulesetStatus::NotEnforced => Err(io::ErrorKind::Unsupported.into()),
            RulesetStatus::PartiallyEnforced => {
                tracing::warn!(
                    "sandbox: this kernel's Landlock is older: signals, abstract sockets, TCP or ioctl(2) of files are not limited"
                );
                Ok(())
            }
            RulesetStatus::FullyEnforced => Ok(()),
        }
    }
}
