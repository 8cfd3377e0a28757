//! Handing a mount over to another program, for an upgrade without an unmount (docs/decisions/0045).
//!
//! [`giving`] is the side of the daemon that serves: it has the [`Monitor`](crate::monitor::Monitor) start the new program, pauses the
//! session, and sends the [state](state::HandedState) with the descriptors. [`taking`] is the side of the new program. Until the
//! message [`ToNew::Commit`](messages::ToNew) the new program writes nothing, and the old one can go on; from then on the old one
//! writes nothing.

/// Longest pause of requests in seconds that can be asked for.
pub(crate) const UPGRADE_SECS_MAX: u64 = 600;

/// Longest pause of requests in seconds without a wish.
pub(crate) const UPGRADE_SECS_DEFAULT: u64 = 20;

pub(crate) mod giving;
mod leaving;
mod link;
mod messages;
pub(crate) mod reviving;
pub(crate) mod state;
pub(crate) mod taking;
pub(crate) mod turn;
