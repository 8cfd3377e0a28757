//! Log lines about failures of the device or of the volume, with path and remedy, each once.
//!
//! The kernel repeats a failed read page by page, and programs repeat it, too. A failure that was logged is not logged
//! again for a while. The path is found by a walk through the directories, which a thread of its own does.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Sender, unbounded};
use parking_lot::Mutex;
use sfs_core::Error;
use sfs_core::format::Structure;

use super::inode_paths;
use crate::mounted_volume::MountedVolume;

/// Time for which a failure is not logged again.
const REPEATED_AFTER: Duration = Duration::from_secs(600);

/// Maximum number of remembered failures. At the maximum all are forgotten, and may be logged
/// again.
const REMEMBERED_MAX: usize = 1024;

/// Log of failures of one mount.
pub(super) struct FailureLog {
    device: String,
    volume: Weak<MountedVolume>,
    logged: Mutex<HashMap<(u64, String), Instant>>,
    /// Thread that finds paths, and the channel to it; made with the first failure.
    thread: Mutex<Option<LogThread>>,
}

/// Thread that finds paths and logs.
struct LogThread {
    sender: Sender<LoggedFailure>,
    /// `None` if the thread did not start.
    handle: Option<JoinHandle<()>>,
}

impl Drop for FailureLog {
    /// Waits until every line is logged.
    fn drop(&mut self) {
        if let Some(LogThread { sender, handle }) = self.thread.lock().take() {
            drop(sender);
            // A panic has ended the process.
            let _ = handle.map(JoinHandle::join);
        }
    }
}

/// Failure of an operation on a file.
struct LoggedFailure {
    ino: u64,
    text: String,
}

impl FailureLog {
    /// Returns a log for `volume` on `device`.
    pub(super) fn new(volume: &Arc<MountedVolume>, device: String) -> Self {
        let (logged, thread) = Default::default();
        Self { device, volume: Arc::downgrade(volume), logged, thread }
    }

    /// Logs that an operation on inode `ino` has failed with `error`, unless that was logged lately.
    pub(super) fn log(&self, ino: u64, error: &Error) {
        if !self.is_news(ino, error.to_string()) {
            return;
        }
        let text = format!("{error}; {}", self.remedy(error));
        let mut thread = self.thread.lock();
        let thread = thread.get_or_insert_with(|| self.start());
        // The channel has no receiver if the thread did not start.
        if let Err(failure) = thread.sender.send(LoggedFailure { ino, text }) {
            let LoggedFailure { ino, text } = failure.into_inner();
            tracing::error!("{}: inode {ino}: {text}", self.device);
        }
    }

    /// Notes the failure; returns whether it was not noted lately.
    fn is_news(&self, ino: u64, text: String) -> bool {
        let now = Instant::now();
        let mut logged = self.logged.lock();
        if logged.len() >= REMEMBERED_MAX {
            logged.clear();
        }
        let before = logged.get(&(ino, text.clone())).copied();
        if before.is_some_and(|before| now.duration_since(before) < REPEATED_AFTER) {
            return false;
        }
        logged.insert((ino, text), now);
        true
    }

    /// Starts the thread that finds paths and logs. Without the thread, the lines have no path.
    fn start(&self) -> LogThread {
        let (sender, receiver) = unbounded::<LoggedFailure>();
        let (volume, device) = (self.volume.clone(), self.device.clone());
        let work = move || {
            for LoggedFailure { ino, text } in receiver {
                let path = path_of(&volume, ino);
                tracing::error!("{device}: {path}: {text}");
            }
        };
        let handle = std::thread::Builder::new().name("sfs-log".into()).spawn(work).ok();
        LogThread { sender, handle }
    }

    fn remedy(&self, error: &Error) -> String {
        let device = &self.device;
        match error {
            Error::Corrupt(what) if what.structure == Structure::Data => format!(
                "restore the file from a backup; 'sfs-fsck -n --data {device}' after an unmount lists \
                 all such files"
            ),
            Error::Device(error) if error.is_late() => {
                "requests succeed again when it does".to_owned()
            }
            Error::Device(_) => {
                format!("copy important files to another device, and replace {device}")
            }
            _ => format!("unmount, and run 'sfs-fsck -n {device}'"),
        }
    }
}

/// Returns the path of inode `ino` from the root of the volume, and its number.
fn path_of(volume: &Weak<MountedVolume>, ino: u64) -> String {
    let named = BTreeSet::from([ino]);
    let volume = volume.upgrade().map(|volume| volume.now());
    let found = volume.map(|volume| inode_paths::of(&volume, Path::new("/"), &named));
    let path = found.and_then(|mut paths| paths.pop()).unwrap_or_default();
    if path.starts_with('/') { format!("{path} (inode {ino})") } else { format!("inode {ino}") }
}
