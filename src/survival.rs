//! Surviving the death of the daemon (docs/decisions/0046).
//!
//! With `-o survive` every change is recorded in memory that the [`Monitor`](crate::monitor::Monitor) holds as well, before the
//! kernel has its reply ([`Journal`]). When the daemon dies, the monitor starts its program again, which opens the volume from the
//! device, executes what is not in the log once more ([`revive`], `fuse::replay`), and has the kernel send again what was not
//! answered.

mod areas;
mod commit_thread;
mod finished_syncs;
mod journal;
mod record;
mod revival;
mod survivors;

pub(crate) use areas::{Areas, MEMORY_BYTES, uselessness};
pub(crate) use commit_thread::CommitThread;
pub(crate) use finished_syncs::is_durable_write;
pub(crate) use journal::{Journal, OpenedNow};
pub(crate) use record::Before;
pub(crate) use revival::{Revival, begin, revive};
pub(crate) use survivors::RecordedRequest;
