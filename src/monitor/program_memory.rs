//! Programs in memory, from which they are started: the one that serves a mount, those before and after an upgrade.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
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

/// Programs of a mount, besides that of this process.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// The program that was started last of those that are installed.
    tried: Option<File>,
    /// The program of the mount, if an upgrade has changed it.
    changed: Option<File>,
    /// The program before the last upgrade, until another one takes its place: `Some(None)` is that of this process.
    before: Option<Option<File>>,
}

impl Programs {
    /// Reads the program that is installed at `path`.
    pub(super) fn try_installed(&mut self, path: &Path) -> io::Result<File> {
        let image = image(trusted_file::open(path)?)?;
        self.tried = Some(image.try_clone()?);
        Ok(image)
    }

    /// Reads the program of the mount.
    pub(super) fn present(&self) -> io::Result<File> {
        image(match &self.changed {
            // Each opening has a position of its own.
            Some(image) => File::open(format!("/proc/self/fd/{}", image.as_raw_fd()))?,
            None => File::open("/proc/self/exe")?,
        })
    }

    /// Makes the installed program that was read last that of the mount. `false` if there was none.
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

/// Returns memory with the content of `program`, which nobody can change. The started program inherits the descriptor: a script is
/// opened by its interpreter.
fn image(mut program: File) -> io::Result<File> {
    if !program.metadata()?.is_file() || program.metadata()?.len() > LEN_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut memory = executable_memory()?;
    io::copy(&mut program, &mut memory)?;
    memory.flush()?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(memory.as_fd(), seals)?;
    Ok(memory)
}

/// Returns empty memory from which a program can be started.
fn executable_memory() -> rustix::io::Result<File> {
    let flags = MemfdFlags::ALLOW_SEALING;
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
            let image = programs.present().expect("memory");
            std::fs::read(format!("/proc/self/fd/{}", image.as_raw_fd())).expect("the memory")
        };
        let own = std::fs::read("/proc/self/exe").expect("this program");
        for version in [b"first", b"other"] {
            std::fs::write(&path, version).expect("a file");
            programs.tried = Some(image(File::open(&path).expect("a file")).expect("memory"));
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
        let image = image(File::open(&path).expect("a file")).expect("memory");
        std::fs::write(&path, b"other").expect("a file");
        let text = std::fs::read(format!("/proc/self/fd/{}", image.as_raw_fd()));
        assert_eq!(text.expect("the memory"), b"first");
        (&image).write_all(b"x").expect_err("nobody can change it");
        let directory = File::open(scratch.path()).expect("a directory");
        super::image(directory).expect_err("a directory is no program");
    }
}
