//! The configuration of the write buffer.

/// The blocks that are written out once the buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteOutPolicy {
    /// All blocks, each to the open segment of its group.
    Heads,
    /// Whole segments of the groups that fill some; the other blocks stay in the buffer (SFS).
    Deferred,
    /// A share of the buffer, from the largest groups; the other blocks stay (the volume).
    Largest,
    /// A share of the buffer, from the groups whose blocks live longest; blocks that will soon be
    /// overwritten stay, without a limit of time.
    Coldest,
}

impl std::fmt::Display for WriteOutPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Heads => "heads",
            Self::Deferred => "deferred",
            Self::Largest => "largest",
            Self::Coldest => "coldest",
        })
    }
}

impl WriteOutPolicy {
    /// Returns the policy for which the grouping policy of this name was designed.
    pub fn of(grouping: &str) -> Self {
        match grouping {
            "sfs-fast12" | "sfs-log" | "sfs-equal-width" | "sfs-equal-count" => Self::Deferred,
            _ => Self::Heads,
        }
    }
}

/// The heads to which a sync writes the blocks that fill no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncRemainder {
    /// Each block to the head of its group.
    Pure,
    /// All blocks to one head, regardless of their groups (SFS).
    Mixed,
}

/// The write buffer.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Buffering {
    /// Size in segments; zero sends every write to the log at once.
    pub segments: u32,
    /// Size in blocks, instead of `segments`.
    pub blocks: Option<u32>,
    /// Choice of the blocks that are written out.
    pub writing: WriteOutPolicy,
    /// Heads to which a sync writes.
    pub remainder: SyncRemainder,
    /// Number of users' writes between two syncs; `None` for no syncs.
    pub sync_interval: Option<u64>,
}

impl Buffering {
    /// No buffer, and no syncs.
    pub const NONE: Self = Self {
        segments: 0,
        blocks: None,
        writing: WriteOutPolicy::Heads,
        remainder: SyncRemainder::Pure,
        sync_interval: None,
    };

    /// Returns the size in blocks, with segments of `segment_blocks`.
    pub(super) fn capacity_blocks(&self, segment_blocks: u32) -> usize {
        self.blocks
            .map_or(self.segments as usize * segment_blocks as usize, |blocks| blocks as usize)
    }
}
