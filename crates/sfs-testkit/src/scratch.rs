//! Directories for a test, and waiting for other processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Maximum wait, longer than any awaited event takes on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// Makes a directory that other users may enter, in memory if `/dev/shm` exists.
///
/// # Panics
///
/// If the directory cannot be made.
pub fn scratch_directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    builder.prefix("sfs-test-").permissions(fs::Permissions::from_mode(0o755));
    let made = if memory.is_dir() { builder.tempdir_in(memory) } else { builder.tempdir() };
    made.expect("a directory")
}

/// Waits until `condition` holds; `event` names it in the panic.
///
/// # Panics
///
/// If the condition does not hold within a minute.
pub fn wait_until(event: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT_MAX;
    while !condition() {
        assert!(Instant::now() < end, "not within {WAIT_MAX:?}: {event}");
        thread::sleep(PAUSE);
    }
}
