//! The limits of the daemon: it gives up what it does not need after the mount.
//!
//! A volume's bytes come from a device that anybody may have written, so a defect in the code that reads them must not give away the
//! machine. [`enter`] drops capabilities ([`capabilities`]), forbids new privileges, restricts the files that can be opened
//! ([`files`], by Landlock), and the system calls ([`system_calls`], by seccomp). The rings of io_uring, which seccomp does not see
//! into, are restricted where they are made, in `sfs-fuse` and `sfs-device`. The few acts that need privileges after that are those of the monitor.
//!
//! A thread inherits the limits from the thread that starts it, so [`enter`] is called before there are others. No limit can be
//! undone. A limit that the kernel lacks is left out, and [`Limits`] tells so.

pub(crate) mod capabilities;
mod files;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod system_calls;

use rustix::thread::{CapabilitySet, set_no_new_privs};

pub(crate) use files::{FileUse, NeededFiles};

/// Limits that hold for the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// `true` if the daemon has no capability but those that it needs.
    pub(crate) capabilities: bool,
    /// `true` if no program that it might run gains privileges.
    pub(crate) no_new_privileges: bool,
    /// `true` if only the needed files can be opened.
    pub(crate) files: bool,
    /// `true` if only the needed system calls are possible.
    pub(crate) system_calls: bool,
}

/// Limits the calling thread, and the threads that it will start, to `files` and to the capabilities `kept`.
pub(crate) fn enter(files: &NeededFiles, kept: CapabilitySet) -> Limits {
    // Without privileges, Landlock and seccomp need this first.
    let no_new_privileges =
        note("no_new_privs", set_no_new_privs(true).map_err(std::io::Error::from));
    let files = note("Landlock", files.enforce());
    let capabilities = note("capabilities", capabilities::keep_only(kept));
    // Last, as it forbids the system calls of the others.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    let outcome = system_calls::enforce();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    let outcome = Err(std::io::ErrorKind::Unsupported.into());
    let system_calls = note("seccomp", outcome);
    Limits { capabilities, no_new_privileges, files, system_calls }
}

/// Logs a limit that cannot be had. Returns whether it holds.
fn note(limit: &str, outcome: std::io::Result<()>) -> bool {
    if let Err(error) = &outcome {
        tracing::warn!("sandbox: {limit} cannot be set, the daemon runs without it: {error}");
    }
    outcome.is_ok()
}

#[cfg(test)]
mod tests;
