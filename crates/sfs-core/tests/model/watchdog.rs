//! A deadline for work that might never end.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs `work` on a thread of its own, and panics if it is not done after `secs` seconds.
pub(crate) fn within<T: Send + 'static>(secs: u64, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        let value = work();
        // The receiver is gone after the deadline.
        let _ = sender.send(());
        value
    });
    match receiver.recv_timeout(Duration::from_secs(secs)) {
        Err(RecvTimeoutError::Timeout) => panic!("not done after {secs} s"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }
    }
}
