//! Programs in memory, from which they are started: the one that serves a mount, those before and after an upgrade.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

use super::trusted_file;
use crate::program::is_called;

/// Name of the program in the list of processes.
const NAME: &str = "sfs-mount";

/// The same for a program that serves a root filesystem: systemd does not end it at shutdown.
const NAME_AT_SHUTDOWN: &str = "@sfs-mount";

/// Setting of the kernel that, at 2, forbids memory from which programs can be started.
const NO_EXEC: &str = "vm.memfd_noexec";

/// Largest size of a program in bytes.
const LEN_MAX: u64 = 1 << 30;

/// Returns the name of a program that is started: spared at shutdown, if this one is.
pub(super) fn name() -> &'static str {
    if is_called("@") { NAME_AT_SHUTDOWN } else { NAME }
}

/// Memory with a whole program, which nobody can change.
#[derive(Debug)]
pub(super) struct ProgramMemory(File);

impl ProgramMemory {
    /// Reads the program that is installed at `path`.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        Self::of(trusted_file::open(path)?)
    }

    /// Reads `program`, which may grow meanwhile.
    pub(super) fn of(program: File) -> io::Result<Self> {
        if !program.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut memory = executable_memory()?;
        if io::copy(&mut program.take(LEN_MAX + 1), &mut memory)? > LEN_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the program is too large"));
        }
        memory.flush()?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(memory.as_fd(), seals)?;
        Ok(Self(memory))
    }

    /// Returns a descriptor of it that programs inherit: a script is opened by its interpreter.
    pub(super) fn inheritable(&self) -> io::Result<OwnedFd> {
        Ok(rustix::fs::open(descriptor_path(&self.0), OFlags::RDONLY, Mode::empty())?)
    }
}

/// Returns the path of what is open as `descriptor`, in this process and in one that has inherited it.
pub(super) fn descriptor_path(descriptor: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// Programs of a mount, besides that of this process.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// The installed program that was started in the last trial.
    tried: Option<ProgramMemory>,
    /// The program of the mount, if an upgrade has changed it.
    changed: Option<ProgramMemory>,
    /// The program before the last upgrade, until another one takes its place: `Some(None)` is that of this process.
    before: Option<Option<ProgramMemory>>,
}

impl Programs {
    /// Forgets the program that was tried.
    pub(super) fn forget_tried(&mut self) {
        self.tried = None;
    }

    /// Notes that `installed` was started.
    pub(super) fn note_tried(&mut self, installed: &ProgramMemory) -> io::Result<()> {
        self.tried = Some(ProgramMemory(installed.0.try_clone()?));
        Ok(())
    }

    /// Reads the program of the mount.
    pub(super) fn present(&self) -> io::Result<ProgramMemory> {
        ProgramMemory::of(match &self.changed {
            // Each opening has a position of its own.
            Some(program) => File::open(descriptor_path(&program.0))?,
            None => File::open("/proc/self/exe")?,
        })
    }

    /// Makes the installed program that was tried that of the mount. `false` if there was none.
    pub(super) fn use_tried(&mut self) -> bool {
        let Some(tried) = self.tried.take() else { return false };
        self.before = Some(self.changed.replace(tried));
        true
    }

    /// Goes back to the program before the last upgrade. `false` if there is none, or this was done before.
    pub(super) fn go_back(&mut self) -> bool {
        let Some(before) = self.before.take() else { return false };
        self.changed = before;
        true
    }
}

/// Returns empty memory from which a program can be started.
fn executable_memory() -> rustix::io::Result<File> {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    // Kernels before 6.3 do not know the flag, and need none.
    let memory = match memfd_create(NAME, flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create(NAME, flags),
        made => made,
    };
    memory.map(File::from)
}

/// Checks that the kernel starts programs from memory.
///
/// # Errors
///
/// The reason, with the remedy.
pub(crate) fn check_starting_from_memory() -> Result<(), String> {
    match executable_memory() {
        Ok(_) => Ok(()),
        Err(Errno::ACCESS) => Err(format!(
            "the kernel starts no program from memory, as the next daemon would be; set {NO_EXEC} to 1 (sysctl {NO_EXEC}=1)"
        )),
        Err(error) => Err(format!(
            "there is no memory from which a program can be started: {error}; free some"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_undone_once() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("program");
        let mut programs = Programs::default();
        assert!(!programs.use_tried() && !programs.go_back());
        let content = |programs: &Programs| {
            std::fs::read(descriptor_path(&programs.present().expect("memory").0))
                .expect("the memory")
        };
        let own = std::fs::read("/proc/self/exe").expect("this program");
        for version in [b"first", b"other"] {
            std::fs::write(&path, version).expect("a file");
            let tried = ProgramMemory::of(File::open(&path).expect("a file")).expect("memory");
            programs.note_tried(&tried).expect("a descriptor");
            assert!(programs.use_tried());
            assert_eq!(content(&programs), version);
        }
        assert!(programs.go_back());
        assert_eq!(content(&programs), b"first");
        assert!(!programs.go_back(), "the one before that is gone");
        assert!(content(&Programs::default()) == own);
    }

    #[test]
    fn the_whole_program_is_in_memory_before_it_is_started() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("program");
        std::fs::write(&path, b"first").expect("a file");
        let program = ProgramMemory::of(File::open(&path).expect("a file")).expect("memory");
        std::fs::write(&path, b"other").expect("a file");
        assert_eq!(std::fs::read(descriptor_path(&program.0)).expect("the memory"), b"first");
        (&program.0).write_all(b"x").expect_err("nobody can change it");
        let directory = File::open(scratch.path()).expect("a directory");
        ProgramMemory::of(directory).expect_err("a directory is no program");
    }
}
