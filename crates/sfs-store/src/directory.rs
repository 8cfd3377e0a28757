//! The directory of a `file:` URL, which must stay the same one.
//!
//! The filesystem that it is on may be unmounted while the program runs. The path then means an empty directory below, where objects must
//! not be made. It may also hang, as a network filesystem does: a look at it is done by a thread of its own, and no second one begins
//! meanwhile.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longest wait for a look at the directory.
const LOOK_WAIT: Duration = Duration::from_secs(20);

/// Outcome of a look at the path of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The directory.
    There,
    /// Another one, or none.
    Gone,
    /// Nothing, for a long time.
    Silent,
}

/// A directory that was there when the program began.
pub(crate) struct Directory {
    is_there: Arc<dyn Fn() -> bool + Send + Sync>,
    wait: Duration,
    /// Number of looks that take longer than they may.
    late: Arc<AtomicUsize>,
}

impl Directory {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let (path, opened) = (path.to_owned(), identity(&fs::metadata(path)?));
        let is_there = move || fs::metadata(&path).is_ok_and(|found| identity(&found) == opened);
        Ok(Self::looking(Arc::new(is_there), LOOK_WAIT))
    }

    fn looking(is_there: Arc<dyn Fn() -> bool + Send + Sync>, wait: Duration) -> Self {
        Self { is_there, wait, late: Arc::default() }
    }

    /// Looks whether the path still means this directory.
    pub(crate) async fn look(&self) -> Presence {
        if self.late.load(Ordering::Acquire) > 0 {
            return Presence::Silent;
        }
        let is_there = self.is_there.clone();
        let mut look = tokio::task::spawn_blocking(move || is_there());
        match tokio::time::timeout(self.wait, &mut look).await {
            Ok(Ok(true)) => Presence::There,
            Ok(_) => Presence::Gone,
            Err(_) => {
                self.late.fetch_add(1, Ordering::AcqRel);
                let late = self.late.clone();
                tokio::spawn(async move {
                    let _ = look.await;
                    late.fetch_sub(1, Ordering::AcqRel);
                });
                Presence::Silent
            }
        }
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work)
    }

    #[test]
    fn another_directory_of_the_same_name_is_not_taken_for_it() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [path, aside] = ["dir", "aside"].map(|name| scratch.path().join(name));
        fs::create_dir(&path).expect("room");
        let directory = Directory::open(&path).expect("a directory");
        let look = || run(directory.look());
        assert_eq!(look(), Presence::There);
        fs::rename(&path, &aside).expect("a directory");
        assert_eq!(look(), Presence::Gone);
        fs::create_dir(&path).expect("room");
        assert_eq!(look(), Presence::Gone);
        fs::remove_dir(&path).expect("an empty directory");
        fs::rename(&aside, &path).expect("a directory");
        assert_eq!(look(), Presence::There);
    }

    /// Neither the other tasks of the runtime nor later looks wait for a filesystem that hangs.
    #[test]
    fn a_directory_that_hangs_is_silent_until_it_answers() {
        let hangs = Arc::new(AtomicBool::new(true));
        let of_look = hangs.clone();
        let is_there = move || {
            while of_look.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            true
        };
        let directory = Directory::looking(Arc::new(is_there), Duration::from_millis(50));
        run(async {
            let ticks = async {
                for _ in 0..10 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Instant::now()
            };
            let looked = async { (directory.look().await, Instant::now()) };
            let (ticked, (found, looked)) = tokio::join!(ticks, looked);
            assert_eq!(found, Presence::Silent);
            assert!(ticked < looked, "the runtime went on");
            let begun = Instant::now();
            assert_eq!(directory.look().await, Presence::Silent);
            assert!(begun.elapsed() < Duration::from_millis(40), "no second look began");
            hangs.store(false, Ordering::Release);
            while directory.look().await == Presence::Silent {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(directory.look().await, Presence::There);
        });
    }
}
