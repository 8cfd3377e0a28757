//! Requests and replies of the control socket: one line of JSON each.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::exit_error::ExitError;
use crate::fuse::LossReport;
use crate::handover::giving::UpgradeReport;
use crate::inspect::asked_work::{CheckpointReport, CleanPart, DefragPart, TrimPart};
use crate::inspect::file_map::FilePart;
use crate::inspect::heat::HeatPart;
use crate::inspect::position::TreePosition;
use crate::inspect::scrub_report::ScrubReport;
use crate::resize_report::ResizeReport;
use crate::stat_report::{SegmentsMessage, VolumeReport};
use crate::volume_cache::CacheReport;

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
    /// Asks for the hottest files and ranges of the next part of the tree.
    Heat {
        /// Position from which the part begins; `None` for the first part.
        from: Option<TreePosition>,
        /// Number of files and ranges.
        top: usize,
    },
    /// Asks for the paths of files.
    Paths(BTreeSet<u64>),
    /// Asks where the blocks of a file are.
    FileBlocks {
        /// Inode number.
        inode: u64,
        /// First block.
        from: u32,
    },
    /// Asks for a round of cleaning of at most so many segments.
    Clean(u32),
    /// Asks to put a part of a file in order.
    Defragment {
        /// Inode number.
        inode: u64,
        /// First block.
        from: u32,
    },
    /// Asks to discard the free segments from this byte on.
    Trim(u64),
    /// Asks for a checkpoint.
    Checkpoint,
    /// A request about the scrub of the volume.
    Scrub(ScrubRequest),
    /// Asks to hand the mount over to the program that is installed now.
    Upgrade {
        /// Longest pause of requests in seconds, if the handover fails.
        pause_max_secs: u64,
    },
    /// A request about the SSD cache of the mount.
    Cache(CacheRequest),
}

/// Request about the SSD cache of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CacheRequest {
    /// Asks for the figures.
    Stat,
    /// Asks to write what was read to the cache device.
    Flush,
    /// Asks to make the volume one without a cache, whether the mount has it open or not.
    Detach,
}

/// Request about the scrub of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScrubRequest {
    /// Asks to begin.
    Start {
        /// Largest number of bytes to read in a second; 0 for no limit.
        rate_bytes: u64,
        /// Position of an earlier scrub.
        position: Option<TreePosition>,
    },
    /// Asks for state and result.
    Status,
    /// Asks to stop.
    Stop,
    /// Asks to go on with the scrub that was stopped.
    Resume {
        /// Another rate than before.
        rate_bytes: Option<u64>,
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
    /// Reply to [`ControlRequest::Heat`].
    Heat(HeatPart),
    /// Reply to [`ControlRequest::Paths`]: the paths that were found, from the root of the volume.
    Paths(BTreeMap<u64, String>),
    /// Reply to [`ControlRequest::FileBlocks`].
    FileBlocks(FilePart),
    /// Reply to [`ControlRequest::Clean`].
    Cleaned(CleanPart),
    /// Reply to [`ControlRequest::Defragment`].
    Defragmented(DefragPart),
    /// Reply to [`ControlRequest::Trim`].
    Trimmed(TrimPart),
    /// Reply to [`ControlRequest::Checkpoint`].
    Checkpoint(CheckpointReport),
    /// Reply to [`ControlRequest::Scrub`].
    Scrub(Box<ScrubReport>),
    /// Reply to [`ControlRequest::Upgrade`].
    Upgraded(UpgradeReport),
    /// Reply to [`ControlRequest::Cache`].
    Cache(Box<CacheReport>),
    /// Reply to [`CacheRequest::Detach`].
    CacheDetached,
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
