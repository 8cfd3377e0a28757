//! The program that takes a mount over: started by the monitor, as the sandboxed daemon can start none.
//!
//! Program and arguments are known before the sandbox, so the daemon chooses neither. The whole program is read into memory first, and
//! started from there: a file that is replaced meanwhile, or that lies on a device which stops, does no harm.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::unistd::geteuid;
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sfs_system::mountinfo::DeviceNumber;

use super::trusted_file;

/// Name of the program in the list of processes.
const NAME: &str = "sfs-mount";

/// Largest size of a program in bytes.
const LEN_MAX: u64 = 1 << 30;

/// Search path of a program that root runs.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that a program gets from root as this process has them. All others stay behind: who mounted, long ago, may have set any.
const KEPT: [&str; 1] = ["XDG_RUNTIME_DIR"];

/// Option of the program, without a promise: only programs of this kind pass it.
const OPTION: &str = "--take-over";

/// Value of the option that tells a program to take a mount over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeOver {
    /// Device number of the mount.
    pub(crate) number: DeviceNumber,
    /// Path of the program, which runs from memory.
    pub(crate) program: PathBuf,
}

impl TakeOver {
    fn to_argument(&self) -> OsString {
        let DeviceNumber { major, minor } = self.number;
        let mut argument = OsString::from(format!("{major}:{minor}:"));
        argument.push(&self.program);
        argument
    }

    /// Parses the value of the option.
    pub(crate) fn parse(argument: &OsStr) -> Option<Self> {
        let mut parts = argument.as_bytes().splitn(3, |byte| *byte == b':');
        let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
        let number = DeviceNumber { major: number()?, minor: number()? };
        Some(Self { number, program: OsStr::from_bytes(parts.next()?).into() })
    }
}

/// Program to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Successor {
    /// The program that is installed now.
    Installed,
    /// The program of this process, which may have been replaced since.
    Own,
}

/// How the mount's program is started.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartSpec {
    /// Path of the program.
    pub(crate) program: PathBuf,
    /// Arguments of the mount.
    pub(crate) arguments: Vec<OsString>,
}

/// Starter of one program at a time.
#[derive(Debug, Default)]
pub(crate) struct Starter {
    spec: StartSpec,
    started: Mutex<Option<Child>>,
}

impl Starter {
    pub(super) fn new(spec: StartSpec) -> Self {
        Self { spec, started: Mutex::default() }
    }

    /// Starts the program for the mount `number`. Returns the socket to it.
    pub(super) fn start(&self, which: Successor, number: DeviceNumber) -> io::Result<OwnedFd> {
        let mut started = self.started.lock();
        end(&mut started);
        let program = match which {
            Successor::Installed => trusted_file::open(&self.spec.program)?,
            Successor::Own => File::open("/proc/self/exe")?,
        };
        let image = image(program)?;
        let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None)?;
        let mut command = Command::new(format!("/proc/self/fd/{}", image.as_raw_fd()));
        command.arg0(NAME).args(&self.spec.arguments);
        let take_over = TakeOver { number, program: self.spec.program.clone() };
        command.arg(OPTION).arg(take_over.to_argument());
        if geteuid().is_root() {
            command.env_clear().env("PATH", PATH).envs(kept_environment());
        }
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        *started = Some(command.spawn()?);
        Ok(ours)
    }

    /// Ends the program, and waits for its end: from then on it writes nothing.
    pub(super) fn stop(&self) {
        end(&mut self.started.lock());
    }
}

fn end(started: &mut Option<Child>) {
    if let Some(mut child) = started.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Returns the variables of this process that the program needs: it must find the same runtime directory.
fn kept_environment() -> impl Iterator<Item = (&'static str, OsString)> {
    KEPT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

/// Returns memory with the content of `program`, which nobody can change. The started program inherits the descriptor: a script is
/// opened by its interpreter.
fn image(mut program: File) -> io::Result<File> {
    if !program.metadata()?.is_file() || program.metadata()?.len() > LEN_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag, and need none.
    let memory =
        memfd_create(NAME, flags | MemfdFlags::EXEC).or_else(|_| memfd_create(NAME, flags))?;
    let mut memory = File::from(memory);
    io::copy(&mut program, &mut memory)?;
    memory.flush()?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(memory.as_fd(), seals)?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_take_over_is_one_argument() {
        let number = DeviceNumber { major: 0, minor: 54 };
        for program in ["/usr/sbin/sfs-mount", "/a:b/c d"] {
            let take_over = TakeOver { number, program: program.into() };
            assert_eq!(TakeOver::parse(&take_over.to_argument()), Some(take_over));
        }
        for wrong in ["", "0:54", "0:x:/a", ":54:/a", "-1:2:/a"] {
            assert_eq!(TakeOver::parse(OsStr::new(wrong)), None, "{wrong}");
        }
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
