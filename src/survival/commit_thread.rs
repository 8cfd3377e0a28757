//! The thread that writes to the log what an area of the journal has, so that the area can be used again.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::journal::Journal;

/// Number of attempts to write, and the pause between two.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// The running thread.
pub(crate) struct CommitThread {
    journal: Arc<Journal>,
    thread: JoinHandle<()>,
}

impl CommitThread {
    pub(crate) fn start(journal: Arc<Journal>) -> io::Result<Self> {
        let of_thread = journal.clone();
        let thread = std::thread::Builder::new().name("sfs-records".into());
        let thread = thread.spawn(move || run(&of_thread))?;
        Ok(Self { journal, thread })
    }

    /// Ends the thread.
    pub(crate) fn stop(self) {
        self.journal.stop();
        let _ = self.thread.join();
    }
}

fn run(journal: &Journal) {
    while let Some((number, has_change)) = journal.wait_for_full() {
        // Nothing is written for references and handles: the volume may be at rest.
        let committed = if has_change { commit(journal) } else { Ok(()) };
        match committed {
            Ok(()) => journal.discard(number),
            Err(error) => journal.fail(&error),
        }
    }
}

/// Writes everything to the log.
fn commit(journal: &Journal) -> Result<(), sfs_core::Error> {
    let mut attempts = 1;
    loop {
        match journal.volume().write_for_handover() {
            Err(_) if attempts < ATTEMPTS => {
                attempts += 1;
                std::thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}
