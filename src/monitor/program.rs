//! The program that takes a mount over: started by the monitor, as the sandboxed daemon can start none.
//!
//! Program and arguments are known before the sandbox, so the daemon chooses neither. The whole program is read into memory first, and
//! started from there: a file that is replaced meanwhile, or that lies on a device which stops, does no harm.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::unistd::geteuid;
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sfs_object::StoreProgram;
use sfs_system::mountinfo::DeviceNumber;

use super::program_memory::{self, ProgramMemory, Programs, descriptor_path};
use super::trial::{Trial, Trials, end};
use super::trusted_file;
use super::upgrade::AnswerUpgrade;
use crate::exit_error::ExitError;

/// Search path of a program that root runs.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that a program gets from root as this process has them. All others stay behind: who mounted, long ago, may have set any.
const KEPT: [&str; 1] = ["XDG_RUNTIME_DIR"];

/// Bytes of requests that wait in the socket of `sfs-store`.
const SENT_AT_ONCE: usize = 1 << 20;

/// Option of the program, without a promise: only programs of this kind pass it.
const OPTION: &str = "--take-over";

/// Value of the option that tells a program to take a mount over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeOver {
    /// Device number of the mount.
    pub(crate) number: DeviceNumber,
    /// Path of the program, which runs from memory.
    pub(crate) program: PathBuf,
    /// `true` if the program before has died, and its monitor goes on.
    pub(crate) after_death: bool,
}

/// First character of the value if the program before has died.
const AFTER_DEATH: &str = "+";

impl TakeOver {
    fn to_argument(&self) -> OsString {
        let DeviceNumber { major, minor } = self.number;
        let mark = if self.after_death { AFTER_DEATH } else { "" };
        let mut argument = OsString::from(format!("{mark}{major}:{minor}:"));
        argument.push(&self.program);
        argument
    }

    /// Parses the value of the option.
    pub(crate) fn parse(argument: &OsStr) -> Option<Self> {
        let argument = argument.as_bytes();
        let unmarked = argument.strip_prefix(AFTER_DEATH.as_bytes());
        let after_death = unmarked.is_some();
        let mut parts = unmarked.unwrap_or(argument).splitn(3, |byte| *byte == b':');
        // A number has no sign: the mark comes once.
        let mut number = || {
            let digits = std::str::from_utf8(parts.next()?).ok()?;
            digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let number = DeviceNumber { major: number()?, minor: number()? };
        Some(Self { number, program: OsStr::from_bytes(parts.next()?).into(), after_death })
    }
}

/// Program that is to take over from one that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Successor {
    /// The program that is installed now.
    Installed,
    /// The program of the mount, whose file may have been replaced since.
    Own,
}

/// Mount that is handed over to a program after the death of another.
pub(crate) struct HeldMount {
    /// State that the program before has given the monitor, which does not look at it.
    pub(crate) state: Vec<u8>,
    /// Descriptors of the state.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Sockets to the monitor: for the mount, and for questions about processes.
    pub(crate) monitor: [OwnedFd; 2],
    /// The system's table of mounts, if the program does not find it.
    pub(crate) mounts: Option<OwnedFd>,
    /// Longest wait until the program has opened the volume, if it is not that of a death.
    pub(crate) opening_max: Option<Duration>,
}

/// Function that hands a mount over to the program at the other end of a socket.
pub(crate) type HandOver = fn(OwnedFd, HeldMount) -> Result<(), NotHandedOver>;

/// Function that checks whether a program could go on with a mount, of which the state and its descriptors are held.
pub(crate) type CheckHeld = fn(&[u8], &[OwnedFd]) -> Result<(), NotHandedOver>;

/// Reason why a mount was not handed over.
#[derive(Debug)]
pub(crate) struct NotHandedOver {
    pub(crate) failure: ExitError,
    /// `true` if no other program could do more.
    pub(crate) is_final: bool,
}

impl From<ExitError> for NotHandedOver {
    fn from(failure: ExitError) -> Self {
        Self { failure, is_final: false }
    }
}

/// How the mount's program is started.
#[derive(Clone, Debug)]
pub(crate) struct StartSpec {
    /// Path of the program.
    pub(crate) program: PathBuf,
    /// Arguments of the mount.
    pub(crate) arguments: Vec<OsString>,
    /// Hands the mount over after the death of a program.
    pub(crate) hand_over: HandOver,
    /// Checks whether that is possible.
    pub(crate) check_held: CheckHeld,
    /// URL of the object store of the mount.
    pub(crate) store: Option<OsString>,
    /// Tells a client the outcome of an upgrade that ended a program.
    pub(crate) answer: AnswerUpgrade,
}

impl Default for StartSpec {
    /// Returns a specification that starts no program.
    fn default() -> Self {
        let hand_over: HandOver = |_, _| Err(ExitError::system("no program can be started").into());
        let (program, arguments) = Default::default();
        let store = None;
        Self { program, arguments, hand_over, check_held: |_, _| Ok(()), store, answer: |_, _| {} }
    }
}

/// Starter of programs: one that serves, and one at a time that is on trial.
#[derive(Debug, Default)]
pub(crate) struct Starter {
    spec: StartSpec,
    trials: Mutex<Trials>,
    /// Program that was started after the death of another.
    serving: Mutex<Option<Child>>,
    programs: Mutex<Programs>,
    /// Program that reaches the object store of the mount.
    store: Mutex<Option<StoreProgram>>,
}

impl Starter {
    pub(super) fn new(spec: StartSpec) -> Self {
        Self { spec, ..Self::default() }
    }

    /// Begins a trial, and ends the one before: no program counts as tried.
    pub(super) fn begin_trial(&self) -> Trial {
        let trial = self.end_trial();
        self.programs.lock().forget_tried();
        trial
    }

    /// Ends the last trial: its program, for whose end this waits, or its right to start one.
    pub(super) fn end_trial(&self) -> Trial {
        self.trials.lock().begin()
    }

    /// Reads the installed program by `read`, and starts it for the mount `number`, in `trial`. Returns the socket to it. Reading and
    /// starting may wait for the mount, without a lock.
    ///
    /// # Errors
    ///
    /// `Interrupted` if the trial has ended meanwhile; errors of the system.
    pub(super) fn try_installed(
        &self,
        trial: Trial,
        read: impl FnOnce(&Path) -> io::Result<ProgramMemory>,
        number: DeviceNumber,
    ) -> io::Result<OwnedFd> {
        self.check(trial)?;
        let installed = read(&self.spec.program)?;
        self.start_in(trial, number, &installed, || self.programs.lock().note_tried(&installed))
    }

    /// Starts the program of the mount `number` in `trial`. Returns the socket to it.
    ///
    /// # Errors
    ///
    /// `Interrupted` if the trial has ended; errors of the system.
    pub(super) fn try_own(&self, trial: Trial, number: DeviceNumber) -> io::Result<OwnedFd> {
        let own = self.programs.lock().present()?;
        self.start_in(trial, number, &own, || Ok(()))
    }

    /// Starts `program` in `trial`, unless that has ended, and calls `note_started`.
    fn start_in(
        &self,
        trial: Trial,
        number: DeviceNumber,
        program: &ProgramMemory,
        note_started: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<OwnedFd> {
        self.check(trial)?;
        let (child, link) = self.spawn(program, number, false)?;
        self.trials.lock().take(trial, child, note_started)?;
        Ok(link)
    }

    fn check(&self, trial: Trial) -> io::Result<()> {
        self.trials.lock().check(trial)
    }

    /// Starts the program of the mount `number`, which takes over from one that has died. Returns the socket to it.
    pub(super) fn start_after_death(&self, number: DeviceNumber) -> io::Result<OwnedFd> {
        let mut serving = self.serving.lock();
        end(&mut serving);
        let own = self.programs.lock().present()?;
        let (child, link) = self.spawn(&own, number, true)?;
        *serving = Some(child);
        Ok(link)
    }

    fn spawn(
        &self,
        program: &ProgramMemory,
        number: DeviceNumber,
        after_death: bool,
    ) -> io::Result<(Child, OwnedFd)> {
        let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None)?;
        // Another program that is started now may inherit it as well, and can only read it.
        let inherited = program.inheritable()?;
        let mut command = Command::new(descriptor_path(&inherited));
        command.arg0(program_memory::name()).args(&self.spec.arguments);
        if after_death {
            // A program of another version may decide by its options.
            command.args(["-o", "survive"]);
        }
        let program = self.spec.program.clone();
        let take_over = TakeOver { number, program, after_death };
        command.arg(OPTION).arg(take_over.to_argument());
        if geteuid().is_root() {
            command.env_clear().env("PATH", PATH).envs(kept_environment());
        }
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        Ok((command.spawn()?, ours))
    }

    /// Makes the installed program that was started last that of the mount. `false` if there was none.
    pub(super) fn use_tried(&self) -> bool {
        self.programs.lock().use_tried()
    }

    /// Goes back to the program before the last upgrade. `false` if there is none, or this was done before.
    pub(super) fn go_back(&self) -> bool {
        self.programs.lock().go_back()
    }

    /// Starts the program that reaches the object store of the mount, and ends the one before. Returns the socket to it. The program is
    /// opened once, as one that root runs.
    pub(super) fn start_store(&self) -> io::Result<OwnedFd> {
        let url = self.spec.store.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let mut store = self.store.lock();
        let program = match &mut *store {
            Some(program) => program,
            none => {
                let program = StoreProgram::beside_this(url)?;
                let file = trusted_file::open(program.path())?;
                none.insert(program.started_from(file))
            }
        };
        let socket = program.connect()?;
        // Objects are some MiB. Who may not have more has what the system gives.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(&socket, SENT_AT_ONCE);
        Ok(socket.into())
    }

    pub(super) fn check_held(
        &self,
        state: &[u8],
        descriptors: &[OwnedFd],
    ) -> Result<(), ExitError> {
        let checked = (self.spec.check_held)(state, descriptors);
        checked.map_err(|refusal| refusal.failure)
    }

    pub(super) fn answer_upgrade(&self) -> AnswerUpgrade {
        self.spec.answer
    }

    pub(super) fn hand_over(&self) -> HandOver {
        self.spec.hand_over
    }

    /// Ends the program that was started after a death, and waits for its end: from then on it writes nothing. Returns how it has
    /// ended: as it has by itself, if it had already.
    pub(super) fn end_serving(&self) -> Option<ExitStatus> {
        end(&mut self.serving.lock())
    }
}

/// Returns the variables of this process that the program needs: it must find the same runtime directory.
fn kept_environment() -> impl Iterator<Item = (&'static str, OsString)> {
    KEPT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The daemon that asked may have died, or waited long enough, before its program was read.
    #[test]
    fn a_trial_that_has_ended_starts_nothing() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (program, ran) = (scratch.path().join("program"), scratch.path().join("ran"));
        let script = format!("#!/bin/sh\ntouch {}\nexec sleep 60\n", ran.display());
        std::fs::write(&program, script).expect("a file");
        let starter = Starter::new(StartSpec { program, ..StartSpec::default() });
        let number = DeviceNumber { major: 0, minor: 1 };
        let read = |path: &Path| ProgramMemory::of(std::fs::File::open(path)?);
        let first = starter.begin_trial();
        let read_too_long = |path: &Path| {
            starter.begin_trial();
            read(path)
        };
        let refused = starter.try_installed(first, read_too_long, number).map(drop);
        assert_eq!(refused.expect_err("it has ended").kind(), io::ErrorKind::Interrupted);
        let own = starter.try_own(first, number).map(drop);
        assert_eq!(own.expect_err("it has ended").kind(), io::ErrorKind::Interrupted);
        assert!(!starter.use_tried(), "nor is it the program of an upgrade");
        assert!(!ran.exists());
        let second = starter.begin_trial();
        let _link = starter.try_installed(second, read, number).expect("it is started");
        let patience = std::time::Instant::now() + Duration::from_secs(30);
        while !ran.exists() && std::time::Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(ran.exists());
        starter.end_trial();
        assert!(!starter.trials.lock().has_program(), "its program was waited for");
        assert!(starter.use_tried(), "an upgrade begins when the trial is over");
        let third = starter.begin_trial();
        starter.try_installed(third, read, number).expect("it is started");
        let fourth = starter.begin_trial();
        let missing = |_: &Path| Err(io::ErrorKind::NotFound.into());
        starter.try_installed(fourth, missing, number).expect_err("there is none");
        assert!(!starter.use_tried(), "the program of the third trial was given up");
    }

    #[test]
    fn a_take_over_is_one_argument() {
        let number = DeviceNumber { major: 0, minor: 54 };
        for program in ["/usr/sbin/sfs-mount", "/a:b/c d"] {
            for after_death in [false, true] {
                let take_over = TakeOver { number, program: program.into(), after_death };
                assert_eq!(TakeOver::parse(&take_over.to_argument()), Some(take_over));
            }
        }
        for wrong in ["", "0:54", "0:x:/a", ":54:/a", "-1:2:/a", "++0:1:/a", "0:+1:/a"] {
            assert_eq!(TakeOver::parse(OsStr::new(wrong)), None, "{wrong}");
        }
    }
}
