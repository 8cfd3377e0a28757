//! The control socket, through which programs send requests to the daemon of a mount.
//!
//! [`ControlClient`] finds the socket of a mount by its device number ([`socket_path`]) and sends
//! one request; [`ControlServer`] answers the request in one of a few threads, by a
//! [`ControlHandler`]. A request and a reply are one bounded line of JSON each, with a deadline; the lines of a
//! trace follow its reply. Only root and the user who runs the daemon are served. No request to the volume waits for a
//! client.

mod asked_work;
mod asking;
mod cache;
mod client;
mod handler;
mod inspection;
mod json_line;
mod messages;
mod segments;
mod server;
mod socket_path;
mod trace;
mod upgrade_answer;

pub(crate) use asking::{ask, ask_within, unknown_reply};
pub(crate) use client::{ControlClient, ControlError};
pub(crate) use handler::ControlHandler;
pub(crate) use messages::{
    CacheRequest, ControlReply, ControlRequest, ScrubRequest, TraceBeginning,
};
pub(crate) use server::{ControlServer, ControlSocket, is_allowed};
pub(crate) use socket_path::{BoundSocket, adopt_for_metrics, listen_for_metrics};
pub(crate) use upgrade_answer::answer_upgrade;
