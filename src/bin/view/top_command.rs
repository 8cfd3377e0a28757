//! `sfs-ctl top`: a live view of a mounted volume.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sfs::command_line::TopArguments;
use sfs::{ExitError, hot_command, segments_command, stat};
use sfs_view::{Look, TopError, TopOptions, VolumeSource};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Number of files that are named.
const FILES: usize = 10;

/// Time that a frame which is printed waits for the files: their names may be anywhere on a large volume.
const FILES_WAIT: Duration = Duration::from_secs(5);

/// A mounted volume, whose daemon is asked.
struct Mounted {
    path: PathBuf,
    /// Thread that looks at the files, meanwhile or for the next frame.
    walk: Option<JoinHandle<Option<String>>>,
    /// Time until which the first answer about the files is waited for.
    wait_until: Instant,
}

impl Mounted {
    fn new(path: PathBuf, waits: bool) -> Self {
        let wait = if waits { FILES_WAIT } else { Duration::ZERO };
        Self { path, walk: None, wait_until: Instant::now() + wait }
    }
}

impl VolumeSource for Mounted {
    type Error = ExitError;

    fn numbers(&mut self) -> Result<String, ExitError> {
        let report = stat::stat(&self.path)?;
        match report.mount_point {
            Some(_) => Ok(report.to_json()),
            None => Err(ExitError::mount(format_args!(
                "{}: is not mounted; 'sfs-ctl report' shows a volume that is not mounted",
                self.path.display()
            ))),
        }
    }

    fn segments(&mut self) -> Result<String, ExitError> {
        Ok(segments_command::segments(&self.path)?.to_json())
    }

    fn heat(&mut self) -> Option<String> {
        let path = self.path.clone();
        let walk = self
            .walk
            .take()
            .unwrap_or_else(|| thread::spawn(move || hot_command::json(&path, FILES).ok()));
        while !walk.is_finished() && Instant::now() < self.wait_until {
            thread::sleep(Duration::from_millis(10));
        }
        if walk.is_finished() {
            return walk.join().ok().flatten();
        }
        self.walk = Some(walk);
        None
    }
}

/// Shows the volume until the user ends the view.
pub(crate) fn run(arguments: &TopArguments) -> Result<(), ExitError> {
    let path = &arguments.mount;
    let is_terminal = io::stdout().is_terminal();
    let look = match arguments.svg {
        true => Look::FULL,
        false => Look::of_environment(is_terminal, |name| std::env::var(name).ok()),
    };
    let term = std::env::var("TERM").unwrap_or_default();
    let can_be_drawn_on = is_terminal && !["", "dumb"].contains(&term.as_str());
    let live = can_be_drawn_on && !arguments.once && !arguments.svg;
    let signal = Arc::new(AtomicUsize::new(0));
    if live {
        for number in [SIGTERM, SIGINT, SIGHUP] {
            let value = number.unsigned_abs() as usize;
            signal_hook::flag::register_usize(number, signal.clone(), value)
                .map_err(|error| ExitError::system(format_args!("signals: {error}")))?;
        }
    }
    let received = signal.clone();
    let options = TopOptions {
        interval: Duration::from_secs_f64(arguments.interval),
        live,
        once: arguments.once,
        samples: arguments.samples,
        svg: arguments.svg,
        size: (arguments.columns, arguments.lines),
        look,
        should_stop: Box::new(move || received.load(Ordering::Relaxed) != 0),
    };
    let mut source = Mounted::new(path.clone(), !live);
    source.numbers()?;
    let outcome = sfs_view::top(&mut source, &options);
    // The terminal is restored: the signal may end the process now.
    let number = signal.load(Ordering::Relaxed);
    if number != 0 {
        let _ = signal_hook::low_level::emulate_default_handler(number as i32);
    }
    match outcome {
        Ok(()) => Ok(()),
        Err(TopError::Volume(_)) if !is_mounted(path) => {
            Err(ExitError::mount(format_args!("{}: was unmounted", path.display())))
        }
        Err(TopError::Volume(error)) => Err(error),
        Err(other) => Err(ExitError::system(format_args!("{}: {other}", path.display()))),
    }
}

/// Returns whether a volume of SFS is mounted at `path`, or on the device there.
fn is_mounted(path: &std::path::Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let mounts = sfs_system::mountinfo::mounts().unwrap_or_default();
    mounts.iter().any(|mount| mount.is_sfs() && (mount.dir == path || mount.source == path))
}
