//! How long requests are tried.

use std::time::{Duration, Instant};

/// How long a store is tried that cannot be reached, or refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Longest time without a useful reply; `None` is for ever.
    pub unreachable: Option<Duration>,
    /// Longest time for which a store refuses one request; `Duration::MAX` is for ever: credentials may be renewed, and space be made.
    pub refusing: Duration,
}

impl Patience {
    /// Of a program whose user is waiting: nothing is tried again that is refused.
    pub const IMPATIENT: Self =
        Self { unreachable: Some(Duration::from_secs(20)), refusing: Duration::ZERO };
    /// Of a mount in use: everything is tried again until it is done. Nothing that a store answers ends a volume.
    pub const OF_MOUNTS: Self = Self { unreachable: None, refusing: Duration::MAX };
}

/// When a caller gives up requests of one kind, whatever the patience of the store is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// When the wait or the trouble began.
    pub(super) begun: Instant,
    /// Longest time since then, and since the last useful reply.
    pub(super) wait: Duration,
    /// Shortest time for a reply, however long the store has not answered: it may be back, and slow.
    pub(super) reply_wait: Duration,
}
