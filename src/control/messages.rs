//! Requests and replies of the control socket: one line of JSON each.

use serde::{Deserialize, Serialize};

use crate::exit_error::ExitError;
use crate::fuse::LossReport;
use crate::resize_report::ResizeReport;
use crate::stat_report::{SegmentsMessage, VolumeReport};

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ControlRequest {
    /// Asks for the numbers of the volume.
    Status,
    /// Asks for the state of the segments from this number on, as many as fit into a message.
    Segments {
        /// Number of the first segment.
        first: u32,
    },
    /// Asks for a second reply, after [`ControlReply::Watching`], with the outcome of the last checkpoint.
    Watch,
    /// Asks whether a remount with this comma list is possible.
    Allow(String),
    /// Asks to allow changes of a volume that was mounted read-only, before the kernel's mount is made writable.
    BeginWriting,
    /// Announces that the kernel's mount has other options now.
    Changed,
    /// Asks to freeze the mount, for at most this many seconds.
    Freeze(u64),
    /// Asks to thaw the mount.
    Thaw,
    /// Asks to make everything durable, and to write nothing until the next change. The kernel's mount must be
    /// read-only by then.
    Rest,
    /// Asks to change the size of the volume to this number of bytes, or to the size of its device.
    Resize {
        /// Size in bytes, of which whole blocks count.
        bytes: Option<u64>,
    },
    /// Asks to record requests until the client closes the connection. [`ControlReply::Tracing`] is followed by the
    /// lines of the trace, without those before and after the requests.
    Trace {
        /// `true` if names in directories are recorded.
        names: bool,
    },
}

/// Reply of the daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ControlReply {
    /// Reply to [`ControlRequest::Status`].
    Status(Box<VolumeReport>),
    /// Reply to [`ControlRequest::Segments`].
    Segments(Box<SegmentsMessage>),
    /// Reply to [`ControlRequest::Watch`].
    Watching,
    /// Reply to [`ControlRequest::Allow`], [`ControlRequest::BeginWriting`] and [`ControlRequest::Changed`].
    Allowed,
    /// Reply to [`ControlRequest::Rest`].
    Resting,
    /// Reply to [`ControlRequest::Freeze`].
    Frozen,
    /// Reply to [`ControlRequest::Thaw`].
    Thawed,
    /// Reply to [`ControlRequest::Trace`].
    Tracing(TraceBeginning),
    /// Reply to [`ControlRequest::Resize`].
    Resized(ResizeReport),
    /// Second reply to [`ControlRequest::Watch`]: everything is on the device.
    Written,
    /// Second reply to [`ControlRequest::Watch`]: this many bytes of the kernel's cache did not
    /// fit, and all other data is on the device.
    #[serde(rename = "written_but")]
    WrittenExcept(u64),
    /// Second reply to [`ControlRequest::Watch`]: like [`ControlReply::WrittenExcept`], and some of the loss was
    /// reported to no program, as far as is known, or has another reason than a full volume.
    #[serde(rename = "written_untold")]
    WrittenUnreported(LossReport),
    /// Reply to a request that is refused or has failed.
    Failed {
        /// Exit status for the program.
        status: u8,
        /// Line for the user.
        line: String,
    },
}

/// Numbers of the volume when a recording begins.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TraceBeginning {
    /// Numbers, as for [`ControlRequest::Status`].
    pub(crate) report: Box<VolumeReport>,
    /// Bytes of the write buffer.
    pub(crate) write_buffer_bytes: u64,
}

impl From<ExitError> for ControlReply {
    fn from(failure: ExitError) -> Self {
        Self::Failed { status: failure.status, line: failure.to_string() }
    }
}
