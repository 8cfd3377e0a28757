//! The acts that need privileges: unmounting the mount of this daemon, and two questions about the process that sent a request.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use nix::mount::MntFlags;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::fs::{Mode, OFlags, openat, readlinkat};
use sfs_system::mountinfo::{DeviceNumber, MountTable};
use zerocopy::IntoBytes;

use super::private_root::{Outside, PrivateRoot};
use super::program::{StartSpec, Starter, Successor};
use super::program_memory::ProgramMemory;
use super::replies::UnderWay;
use super::trial::Trial;
use crate::exit_error::ExitError;
use crate::mount;

/// Largest flag of a shutdown: data that is not durable is lost. The flags 0 and 1 make everything durable first.
pub(crate) const SHUTDOWN_FLAG_MAX: u32 = 2;

/// Lowest address at which a process may have memory (`vm.mmap_min_addr` is a page at least).
const LOWEST_ADDRESS: u64 = 4096;

/// The acts on the mount and on other processes.
#[derive(Debug)]
pub(crate) struct PrivilegedActs {
    noted: OnceLock<NotedMount>,
    /// Starter of the programs of the mount.
    pub(super) starter: Starter,
    /// `/proc`, unless it cannot be opened. A daemon that was started in the initramfs does not find the path any more once the system
    /// has its root filesystem.
    processes: Option<File>,
    /// The system, if this process lives in a root directory of its own.
    outside: Option<Outside>,
    under_way: UnderWay,
}

impl Default for PrivilegedActs {
    fn default() -> Self {
        let processes = File::open("/proc").ok();
        let (noted, starter, under_way) = Default::default();
        Self { noted, starter, processes, outside: None, under_way }
    }
}

/// The mount that may be unmounted.
#[derive(Debug)]
struct NotedMount {
    dir: PathBuf,
    number: DeviceNumber,
    table: Arc<MountTable>,
}

impl PrivilegedActs {
    /// Returns acts that start a program by `spec`.
    pub(super) fn starting(spec: StartSpec) -> Self {
        Self { starter: Starter::new(spec), ..Self::default() }
    }

    /// Returns acts that start a program by `spec`, in `root` if there is one: takes this process there, which must have one thread.
    pub(super) fn starting_in(spec: StartSpec, root: Option<PrivateRoot>) -> io::Result<Self> {
        let Some(root) = root else { return Ok(Self::starting(spec)) };
        // The system's /proc is opened first.
        let acts = Self { starter: Starter::new(spec), ..Self::default() };
        Ok(Self { outside: Some(root.enter()?), ..acts })
    }

    /// Opens the system's table of mounts.
    pub(super) fn mounts(&self) -> io::Result<Arc<MountTable>> {
        let table = match self.table_of_outside()? {
            Some(table) => MountTable::adopt(table),
            None => MountTable::open()?,
        };
        Ok(Arc::new(table))
    }

    /// Opens the system's table of mounts for a program that does not find it; `None` if it does.
    pub(super) fn table_of_outside(&self) -> io::Result<Option<OwnedFd>> {
        let Some(outside) = &self.outside else { return Ok(None) };
        let processes = self.processes.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let open = || openat(processes, "thread-self/mountinfo", flags, Mode::empty());
        Ok(Some(outside.run(open)??))
    }

    /// Starts a program in `trial` that takes the mount over. Returns the socket to it. Reading the installed program may wait for the
    /// mount.
    pub(super) fn start_program(&self, which: Successor, trial: Trial) -> io::Result<OwnedFd> {
        let number = self.mounted()?;
        match which {
            Successor::Installed => {
                self.starter.try_installed(trial, |path| self.read(path), number)
            }
            Successor::Own => self.starter.try_own(trial, number),
        }
    }

    /// Starts the program of the mount again after it has died. Returns the socket to it.
    pub(super) fn start_after_death(&self) -> io::Result<OwnedFd> {
        self.starter.start_after_death(self.mounted()?)
    }

    /// Returns the number of the mount.
    fn mounted(&self) -> io::Result<DeviceNumber> {
        Ok(self.noted.get().ok_or(io::ErrorKind::NotFound)?.number)
    }

    /// Reads the program that is installed in the system at `path`.
    fn read(&self, path: &Path) -> io::Result<ProgramMemory> {
        match &self.outside {
            Some(outside) => outside.run_at_root(|| ProgramMemory::read(path))?,
            None => ProgramMemory::read(path),
        }
    }

    /// Returns the acts that are done in threads of their own.
    pub(super) fn under_way(&self) -> &UnderWay {
        &self.under_way
    }

    /// Returns whether the programs of the mount live in a root directory of their own.
    pub(super) fn is_apart(&self) -> bool {
        self.outside.is_some()
    }

    /// Ends the program that was started after a death, and one that was to take over from it. Returns whether the former was killed,
    /// by whomever; `false` if there is none.
    pub(super) fn end_programs(&self) -> bool {
        self.starter.begin_trial();
        let status = self.starter.end_serving();
        status.and_then(|status| status.signal()) == Some(libc::SIGKILL)
    }

    /// Names the mount; a second call has no effect.
    pub(super) fn note_mount(&self, dir: PathBuf, number: DeviceNumber, table: Arc<MountTable>) {
        let _ = self.noted.set(NotedMount { dir, number, table });
    }

    /// Unmounts, unless the mount is gone or another filesystem is mounted on top of it.
    pub(super) fn detach(&self, flags: MntFlags) -> Result<(), ExitError> {
        let Some(noted) = self.noted.get().filter(|noted| noted.is_on_top()) else { return Ok(()) };
        let detach = || mount::detach(&noted.dir, flags);
        match &self.outside {
            Some(outside) => outside.run(detach).map_err(ExitError::system)?,
            None => detach(),
        }
    }

    /// Returns the effective capabilities of the process, or thread, `pid`, if it is in the user namespace of this process:
    /// capabilities in another namespace do not count for this filesystem.
    pub(super) fn capabilities(&self, pid: u32) -> Option<u64> {
        let path = format!("{pid}/status");
        let status = openat(self.processes.as_ref()?, path, OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = String::new();
        File::from(status).read_to_string(&mut text).ok()?;
        effective_capabilities(&text).filter(|_| self.is_in_own_namespace(pid))
    }

    /// Returns whether process `pid` is in the user namespace of this process.
    fn is_in_own_namespace(&self, pid: u32) -> bool {
        let namespace = |pid: &str| {
            let path = format!("{pid}/ns/user");
            readlinkat(self.processes.as_ref()?, path, Vec::new()).ok()
        };
        match (namespace(&pid.to_string()), namespace("self")) {
            (Some(theirs), Some(own)) => theirs == own,
            _ => false,
        }
    }
}

impl NotedMount {
    /// Returns whether a path to the mount point leads to this mount.
    fn is_on_top(&self) -> bool {
        let found = self.table.at(&self.dir).ok().flatten();
        found.is_some_and(|mount| mount.number == self.number)
    }
}

/// Returns the effective capabilities in the content of `/proc/PID/status`.
fn effective_capabilities(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(value.trim(), 16).ok()
}

/// Reads the flag of a shutdown at `address` of process `pid`, which waits for a reply. `EINVAL` for a larger number, and for an
/// address that cannot be read; `EFAULT` for one of no process.
pub(super) fn shutdown_flag(pid: u32, address: u64) -> Result<u32, i32> {
    let mut number = 0u32;
    // Nothing is ever mapped there. Elsewhere one error for all failures: a daemon that asks about other processes learns nothing of
    // their memory.
    if address < LOWEST_ADDRESS {
        return Err(libc::EFAULT);
    }
    let base = usize::try_from(address).map_err(|_| libc::EINVAL)?;
    let from = [RemoteIoVec { base, len: size_of_val(&number) }];
    let mut to = [IoSliceMut::new(number.as_mut_bytes())];
    match process_vm_readv(Pid::from_raw(pid.cast_signed()), &mut to, &from) {
        Ok(len) if len == size_of::<u32>() && number <= SHUTDOWN_FLAG_MAX => Ok(number),
        _ => Err(libc::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let status = "Name:\tcat\nCapPrm:\t0000000000000000\nCapEff:\t0000000000200000\n";
        assert_eq!(effective_capabilities(status), Some(0x20_0000));
        let without = "CapPrm:\tffffffffffffffff\nCapEff:\t000001ffffdfffff\n";
        assert_eq!(effective_capabilities(without), Some(0x1ff_ffdf_ffff));
        assert_eq!(effective_capabilities("Name:\tcat\n"), None);
        let acts = PrivilegedActs::default();
        assert!(acts.capabilities(std::process::id()).is_some());
        assert!(acts.capabilities(u32::MAX).is_none());
    }

    #[test]
    fn flags_are_read_from_the_caller_and_nothing_else() {
        let (own, numbers) = (std::process::id(), [2u32, 3]);
        let address = |index: usize| &raw const numbers[index] as u64;
        assert_eq!(shutdown_flag(own, address(0)), Ok(2));
        assert_eq!(shutdown_flag(own, address(1)), Err(libc::EINVAL), "the number stays unknown");
        assert_eq!(shutdown_flag(own, 8), Err(libc::EFAULT));
        assert_eq!(shutdown_flag(own, 1 << 62), Err(libc::EINVAL), "as for a number");
    }
}
