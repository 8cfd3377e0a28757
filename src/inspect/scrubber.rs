//! The thread that scrubs a mounted volume, one step after another.
//!
//! The thread reads at most so many bytes a second as it was told, and yields to requests of users: while there are new ones,
//! it waits up to [`YIELD_MAX`] before a step. It ends between two steps when it is stopped. State and result stay in
//! memory until the mount ends; nothing is written to the volume.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sfs_core::format::Key;
use sfs_core::{Scrub, Volume};
use sfs_device::BLOCK_SIZE;
use uuid::Uuid;

use super::position::TreePosition;
use super::scrub_report::{DamagedPlace, ScrubReport, ScrubState};
use crate::exit_error::ExitError;
use crate::file_clock;
use crate::mounted_volume::MountedVolume;

/// Bytes a second without another wish.
pub(crate) const RATE_DEFAULT: u64 = 8 << 20;

/// Longest time that a step waits for users' requests to pause.
const YIELD_MAX: Duration = Duration::from_millis(50);

/// Time between two looks whether users make requests.
const YIELD: Duration = Duration::from_millis(5);

/// Number of damaged files that the log names.
const LOGGED_MAX: usize = 8;

/// Scrubber of one mount.
pub(crate) struct Scrubber {
    volume: Arc<MountedVolume>,
    /// Name of the device, for messages.
    device: String,
    shared: Arc<SharedState>,
    /// Held while a scrub begins.
    starting: Mutex<()>,
}

#[derive(Default)]
struct SharedState {
    progress: Mutex<Progress>,
    /// Notified when the scrub is to stop, and when it has ended.
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    report: ScrubReport,
    is_stopping: bool,
    /// Time since when it runs.
    since: Option<Instant>,
    /// Time of earlier runs.
    before: Duration,
}

impl Scrubber {
    pub(crate) fn new(volume: Arc<MountedVolume>, device: String) -> Self {
        let uuid = Uuid::from_bytes(volume.now().superblock().uuid).to_string();
        let shared = SharedState::default();
        shared.progress.lock().report = ScrubReport { version: 1, uuid, ..ScrubReport::default() };
        Self { volume, device, shared: Arc::new(shared), starting: Mutex::default() }
    }

    /// Begins a scrub, from `position` on where one is given, at `rate_bytes` a second.
    pub(crate) fn start(
        &self,
        rate_bytes: u64,
        position: Option<TreePosition>,
    ) -> Result<ScrubReport, ExitError> {
        let _starting = self.starting.lock();
        {
            let mut progress = self.shared.progress.lock();
            self.refuse_running(&progress)?;
            let uuid = std::mem::take(&mut progress.report.uuid);
            progress.report = ScrubReport { version: 1, uuid, ..ScrubReport::default() };
            progress.before = Duration::ZERO;
        }
        self.run(rate_bytes, position.unwrap_or(TreePosition::START))
    }

    /// Goes on with the scrub that was stopped.
    pub(crate) fn resume(&self, rate_bytes: Option<u64>) -> Result<ScrubReport, ExitError> {
        let _starting = self.starting.lock();
        let (rate, position) = {
            let progress = self.shared.progress.lock();
            self.refuse_running(&progress)?;
            let ScrubReport { state, rate_bytes, position, .. } = &progress.report;
            if *state != ScrubState::Stopped {
                return Err(self.failure("no scrub was stopped since the mount; start one"));
            }
            let position = position.as_deref().and_then(|position| position.parse().ok());
            (*rate_bytes, position.unwrap_or(TreePosition::START))
        };
        self.run(rate_bytes.unwrap_or(rate), position)
    }

    /// Has a scrub stop after its current step, without waiting for it: on a failing device a step takes long.
    pub(crate) fn begin_to_stop(&self) {
        self.shared.progress.lock().is_stopping = true;
        self.shared.changed.notify_all();
    }

    /// Stops a scrub after its current step. Returns whether one was running.
    pub(crate) fn stop(&self) -> bool {
        let mut progress = self.shared.progress.lock();
        if progress.report.state != ScrubState::Running {
            return false;
        }
        progress.is_stopping = true;
        self.shared.changed.notify_all();
        while progress.report.state == ScrubState::Running {
            self.shared.changed.wait(&mut progress);
        }
        true
    }

    /// Returns whether a scrub is running.
    pub(crate) fn is_running(&self) -> bool {
        self.shared.progress.lock().report.state == ScrubState::Running
    }

    /// Returns state and result.
    pub(crate) fn report(&self) -> ScrubReport {
        let progress = self.shared.progress.lock();
        let running = progress.since.map_or(Duration::ZERO, |since| since.elapsed());
        let running_secs = (progress.before + running).as_secs();
        ScrubReport { running_secs, ..progress.report.clone() }
    }

    fn refuse_running(&self, progress: &Progress) -> Result<(), ExitError> {
        match progress.report.state {
            ScrubState::Running => Err(self.failure("a scrub is running already")),
            _ => Ok(()),
        }
    }

    fn failure(&self, reason: &str) -> ExitError {
        ExitError::mount(format_args!("{}: {reason}", self.device))
    }

    fn run(&self, rate_bytes: u64, position: TreePosition) -> Result<ScrubReport, ExitError> {
        let volume = self.volume.now();
        let scrub = volume.begin_scrub(position.into());
        let scrub = scrub.map_err(|error| self.failure(&error.to_string()))?;
        {
            let mut progress = self.shared.progress.lock();
            progress.is_stopping = false;
            progress.since = Some(Instant::now());
            let report = &mut progress.report;
            report.state = ScrubState::Running;
            report.position = Some(position.to_string());
            report.rate_bytes = rate_bytes;
            report.started_secs = file_clock::now().secs;
            report.live_blocks = volume.live_blocks();
        }
        let (shared, device) = (self.shared.clone(), self.device.clone());
        let work = move || work(&volume, &shared, scrub, rate_bytes, &device);
        if let Err(error) = std::thread::Builder::new().name("sfs-scrub".into()).spawn(work) {
            self.shared.end(ScrubState::Stopped);
            return Err(ExitError::system(format_args!("cannot start a thread: {error}")));
        }
        Ok(self.report())
    }
}

/// Does step after step until the end, or until the scrub is to stop.
fn work(volume: &Volume, shared: &SharedState, mut scrub: Scrub, rate_bytes: u64, device: &str) {
    let mut requests = volume.request_count();
    while !scrub.is_done() {
        let begun = Instant::now();
        while begun.elapsed() < YIELD_MAX && has_grown(&mut requests, volume.request_count()) {
            if shared.pause(YIELD) {
                break;
            }
        }
        let step = volume.scrub_step(&mut scrub);
        for damage in &step.damage {
            let DamagedPlace { kind, at, inode, .. } = DamagedPlace::from(damage);
            let owner = inode.map_or(String::new(), |inode| format!(" (inode {inode})"));
            tracing::error!("{device}: scrub: {kind} damaged or unreadable at {at}{owner}");
        }
        shared.progress.lock().report.add(&step, scrub.position());
        let least = pause_of(step.counts.all(), rate_bytes).saturating_sub(begun.elapsed());
        if shared.pause(least) {
            break;
        }
    }
    let is_done = scrub.is_done();
    // The walk for the names comes after the end: an unmount does not wait for it.
    let ended = shared.end(if is_done { ScrubState::Done } else { ScrubState::Stopped });
    let paths = ended.paths(volume);
    let named = {
        let mut progress = shared.progress.lock();
        // A scrub that was begun meanwhile names its own files.
        if progress.report.state == ScrubState::Running {
            return;
        }
        progress.report.set_paths(&paths);
        progress.report.clone()
    };
    if is_done {
        log_result(&named, device);
    }
}

fn log_result(report: &ScrubReport, device: &str) {
    let files = report.damaged_files();
    match report.damage_count {
        0 => tracing::info!("{device}: scrub: everything was read, and is sound"),
        count => tracing::error!(
            "{device}: scrub: {count} damaged places, in {} files: {}; restore these files from a backup, and run \
             sfs-fsck after an unmount",
            files.len(),
            files[..files.len().min(LOGGED_MAX)].join(", ")
        ),
    }
}

/// Returns whether `now` is above `last`, which becomes `now`.
fn has_grown(last: &mut u64, now: u64) -> bool {
    std::mem::replace(last, now) != now
}

/// Returns the time that reading `blocks` may take at least.
pub(crate) fn pause_of(blocks: u64, rate_bytes: u64) -> Duration {
    match rate_bytes {
        0 => Duration::ZERO,
        rate => Duration::from_secs_f64((blocks * BLOCK_SIZE as u64) as f64 / rate as f64),
    }
}

impl SharedState {
    /// Notes that the scrub has ended, and returns its result.
    fn end(&self, state: ScrubState) -> ScrubReport {
        let mut progress = self.progress.lock();
        progress.report.state = state;
        if let Some(since) = progress.since.take() {
            progress.before += since.elapsed();
        }
        self.changed.notify_all();
        progress.report.clone()
    }

    /// Waits for `time`, or until the scrub is to stop, and returns whether it is.
    fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut progress = self.progress.lock();
        while !progress.is_stopping && Instant::now() < end {
            self.changed.wait_until(&mut progress, end);
        }
        progress.is_stopping
    }
}

/// Scrubs a volume that is not mounted, in this thread, and calls `goes_on` after each step. Returns the result, which ends where
/// `goes_on` returns `false`.
pub(crate) fn scrub_here(
    volume: &Volume,
    rate_bytes: u64,
    position: TreePosition,
    goes_on: &mut dyn FnMut(&ScrubReport) -> bool,
) -> sfs_core::Result<ScrubReport> {
    let mut scrub = volume.begin_scrub(Key::from(position))?;
    let begun = Instant::now();
    let mut report = ScrubReport {
        version: 1,
        uuid: Uuid::from_bytes(volume.superblock().uuid).to_string(),
        state: ScrubState::Running,
        rate_bytes,
        started_secs: file_clock::now().secs,
        live_blocks: volume.live_blocks(),
        ..ScrubReport::default()
    };
    while !scrub.is_done() {
        let step_begun = Instant::now();
        let step = volume.scrub_step(&mut scrub);
        report.add(&step, scrub.position());
        report.running_secs = begun.elapsed().as_secs();
        if !goes_on(&report) {
            break;
        }
        let least = pause_of(step.counts.all(), rate_bytes);
        std::thread::sleep(least.saturating_sub(step_begun.elapsed()));
    }
    report.name_files(volume);
    report.state = if scrub.is_done() { ScrubState::Done } else { ScrubState::Stopped };
    Ok(report)
}
