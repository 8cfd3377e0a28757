//! Options of a mount, with their defaults.

use std::time::Duration;

/// The options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeOptions {
    /// `true` if the volume never writes to the device.
    pub read_only: bool,
    /// Budget of the write buffer in bytes.
    pub write_buffer: usize,
    /// Budget of the caches, in bytes.
    pub cache: usize,
    /// Longest time that dirty data stays in memory.
    pub commit_interval: Duration,
    /// `true` if a pause of some tens of milliseconds in writing is followed by a commit, within limits: for a mount that
    /// sync(2) does not reach.
    pub commits_soon: bool,
    /// Longest time between checkpoints while much is written; 300 s while little is, unless this is below 30 s.
    pub checkpoint_interval: Duration,
    /// `true` if segments that become Clean are discarded.
    pub discard: bool,
    /// Grouping policy: one of [`crate::policy::GROUPING_POLICIES`].
    pub grouping: String,
    /// Number of groups, for policies that let the user choose it.
    pub groups: Option<u8>,
    /// Victim policy: one of [`crate::policy::VICTIM_POLICIES`]; `None` for the default of the grouping policy.
    pub victim: Option<String>,
    /// Place of the blocks that do not fill a segment of their group when they have to be written.
    pub remainder: Remainder,
    /// `true` if the background does not clean during requests unless segments are short.
    pub yield_cleaning: bool,
    /// Difference between the erase cycles of the most used segment and of one with data that never changes from which on that
    /// data is moved (static wear levelling); `None` if it is never moved. For flash without a controller that levels wear.
    pub wear_levelling: Option<u16>,
    /// Percentage of the bytes that users write that defragmentation may write while the volume is idle; 0 for none.
    pub idle_defragmentation: u8,
    /// Time at which a Drained segment becomes Clean.
    pub release: Release,
    /// Reaction to damage on the device.
    pub on_error: ErrorReaction,
    /// `true` if a thread of the caller calls [`Volume::log_step`](crate::Volume::log_step). Writers and changes of metadata then
    /// leave the log to that thread; the caller lets writes wait for
    /// [`Volume::has_write_room`](crate::Volume::has_write_room).
    pub has_log_thread: bool,
    /// Reading of a file that moves its time of access. Can be changed while mounted, by
    /// [`Volume::set_access_times`](crate::Volume::set_access_times).
    pub access_times: AccessTimePolicy,
    /// Random number of this mount, by which a volume with an SSD cache recognizes that another program has written to it. With zeros
    /// no cache is trusted after the mount.
    pub epoch: [u8; 16],
    /// `true` if only the last checkpoint is loaded, without the log since then. Such a volume is read-only.
    pub skip_recovery: bool,
}

/// The reading of a file that moves its time of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTimePolicy {
    /// None.
    Never,
    /// The first since a change of the file, and one a day.
    Relative,
    /// All.
    Strict,
}

/// Progress of opening a volume whose data is overwritten in place: a mount for writing reads every mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenProgress {
    /// Number of blocks that have been found.
    pub found_blocks: u64,
    /// Number of live blocks in place according to the usage table.
    pub total_blocks: u64,
}

/// The reaction of a volume that is mounted for writing to damage. The request that met the damage fails in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorReaction {
    /// Continues.
    Continue,
    /// Stops writing, as after a failed write.
    RemountReadOnly,
}

/// The time at which a Drained segment becomes Clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// As soon as recovery does not need the segment: the deltas that drained it are durable, and it holds no part of
    /// the last checkpoint or of the deltas since.
    Durable,
    /// At once. A crash then loses data; tests use this to prove the need of [`Release::Durable`].
    AtOnce,
}

/// The place of blocks that have to be written although they do not fill a segment of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// The open segment of their group: one write request for each group.
    Pure,
    /// One group for all (SFS, section 3.3): one write request.
    Mixed,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            write_buffer: 64 << 20,
            cache: 128 << 20,
            commit_interval: Duration::from_secs(5),
            commits_soon: false,
            checkpoint_interval: Duration::from_secs(30),
            discard: true,
            grouping: "sfs".into(),
            groups: None,
            victim: None,
            remainder: Remainder::Pure,
            yield_cleaning: true,
            wear_levelling: None,
            idle_defragmentation: 0,
            release: Release::Durable,
            on_error: ErrorReaction::Continue,
            has_log_thread: false,
            access_times: AccessTimePolicy::Relative,
            epoch: [0; 16],
            skip_recovery: false,
        }
    }
}
