//! The thread that follows the writer of a volume: it opens newer states, and tells the kernel to drop what it has from older ones.
//!
//! It holds no lock while it sends notifications. While it waits for the object store it keeps nothing of the mount, so that an unmount
//! does not wait for it.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, RecvTimeoutError};
use sfs_core::request::VolumeOptions;
use sfs_fuse::Notifier;

use crate::fuse::{FollowingShell, FuseShell, StateOpener};
use crate::object_volume::reader::ObjectReader;

/// Time between two looks whether requests on an old state have ended.
const LOOK: Duration = Duration::from_millis(20);

/// How a mount goes on to newer states of its volume.
pub(crate) struct Following {
    opener: Arc<StateOpener>,
    /// Time between two looks for a newer state; `None` to go on only when objects of the state are deleted.
    interval: Option<Duration>,
}

impl Following {
    /// Returns how a mount of the volume `name` goes on to the states that `reader` opens.
    pub(crate) fn of(reader: Arc<ObjectReader>, options: &VolumeOptions, name: String) -> Self {
        let (interval, options) = (reader.interval(), options.clone());
        let open = Box::new(move || reader.open_newer(&options));
        Self { opener: Arc::new(StateOpener::new(name, open)), interval }
    }

    /// Returns the handler of a mount that begins with `shell`, and starts the thread, which ends after the handler.
    pub(super) fn start(
        self,
        shell: FuseShell,
        notifier: Notifier,
    ) -> io::Result<Arc<FollowingShell>> {
        let (wake, woken) = channel::bounded(1);
        // A token that is there already wakes the thread as well.
        let swapped = Box::new(move || _ = wake.try_send(()));
        let handler = Arc::new(FollowingShell::new(shell, self.opener.clone(), swapped));
        let of_thread = Arc::downgrade(&handler);
        let thread = thread::Builder::new().name("sfs-follow".into());
        thread.spawn(move || self.run(&of_thread, &notifier, &woken))?;
        Ok(handler)
    }

    fn run(&self, handler: &Weak<FollowingShell>, notifier: &Notifier, woken: &Receiver<()>) {
        let next = || self.interval.map(|interval| Instant::now() + interval);
        let mut due = next();
        let mut is_clean = true;
        loop {
            let look = (!is_clean).then(|| Instant::now() + LOOK);
            if wait(woken, look.into_iter().chain(due).min()) == Err(HandlerHasEnded) {
                return;
            }
            if due.is_some_and(|due| due <= Instant::now()) {
                due = next();
                let Some(may_go_on) = handler.upgrade().map(|handler| handler.may_go_on()) else {
                    return;
                };
                if may_go_on {
                    let newer = self.opener.open();
                    let Some(handler) = handler.upgrade() else { return };
                    handler.go_on(&newer);
                    due = next();
                }
            }
            let Some(handler) = handler.upgrade() else { return };
            is_clean = handler.invalidate(|ino| {
                if let Err(error) = notifier.invalidate_inode(ino, 0, 0) {
                    tracing::debug!("inode {ino}: the kernel refuses the notification: {error}");
                }
            });
        }
    }
}

/// The handler is gone, with the other end of the channel.
#[derive(Debug, PartialEq, Eq)]
struct HandlerHasEnded;

/// Waits until `end`, or until the thread is woken.
fn wait(woken: &Receiver<()>, end: Option<Instant>) -> Result<(), HandlerHasEnded> {
    let woken = match end {
        Some(end) => woken.recv_deadline(end),
        None => woken.recv().map_err(|_| RecvTimeoutError::Disconnected),
    };
    match woken {
        Ok(()) | Err(RecvTimeoutError::Timeout) => Ok(()),
        Err(RecvTimeoutError::Disconnected) => Err(HandlerHasEnded),
    }
}
