//! Looking inside a volume, and the work that an administrator asks for: what the daemon of a mount and a program with an
//! unmounted device do in the same way.
//!
//! The reports here are what `sfs-ctl` prints, and what the control socket carries in parts: each request does a
//! bounded part of the work, and the client asks for the next. So a client that dies leaves nothing behind.

pub(crate) mod asked_work;
pub(crate) mod file_map;
pub(crate) mod heat;
pub(crate) mod position;
pub(crate) mod scrub_report;
pub(crate) mod scrubber;
