//! Requests and replies of the control socket: one line of JSON each.

use serde::{Deserialize, Serialize};

use crate::exit_error::ExitError;
use crate::fuse::LossReport;
use crate::report::VolumeReport;

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ControlRequest {
    /// The numbers of the volume.
    Status,
    /// To be told, after [`ControlReply::Watching`], how the last checkpoint went.
    Watch,
    /// Whether a remount with this comma list is possible.
    Allow(String),
    /// Make everything durable, and write nothing until something changes. The kernel's mount is
    /// read-only by then.
    Rest,
}

/// What the daemon says to it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ControlReply {
    /// To [`ControlRequest::Status`].
    Status(Box<VolumeReport>),
    /// To [`ControlRequest::Watch`].
    Watching,
    /// To [`ControlRequest::Allow`].
    Allowed,
    /// To [`ControlRequest::Rest`].
    Resting,
    /// To who watches: everything is on the device.
    Written,
    /// To who watches: so many bytes of the kernel's cache did not fit, all else is on the device.
    #[serde(rename = "written_but")]
    WrittenExcept(u64),
    /// As [`ControlReply::WrittenExcept`], and of some of it no program was told, as far as that is known.
    #[serde(rename = "written_untold")]
    WrittenUnreported(LossReport),
    /// It cannot be, or it went wrong.
    Failed {
        /// Exit status for the program.
        status: u8,
        /// What the user is told.
        line: String,
    },
}

impl From<ExitError> for ControlReply {
    fn from(failure: ExitError) -> Self {
        Self::Failed { status: failure.status, line: failure.to_string() }
    }
}
