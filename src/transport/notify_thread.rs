//! The thread that sends the kernel the notifications that the shell posts.

use std::io;
use std::thread;

use crate::fuse::AttributeInvalidations;

/// Offset of a notification that invalidates attributes but no cached data.
pub(super) const ATTRIBUTES_ONLY: i64 = -1;

/// Runs `serve` while a thread passes the inodes that are posted to `invalidations` to `send`, and
/// calls `prune` for each posted prune. The thread ends with `serve`.
pub(super) fn serve_with_notifications(
    invalidations: &AttributeInvalidations,
    send: impl Fn(u64) -> io::Result<()> + Send,
    prune: impl Fn() + Send,
    serve: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    thread::scope(|scope| {
        let send = move |ino| {
            if let Err(error) = send(ino) {
                tracing::debug!("inode {ino}: the kernel refuses the notification: {error}");
            }
        };
        let thread = thread::Builder::new().name("sfs-notify".into());
        thread.spawn_scoped(scope, move || invalidations.serve(send, prune))?;
        let outcome = serve();
        invalidations.end();
        outcome
    })
}
