//! The numbers of a volume that the pictures show, as `sfs-ctl stat --json` and `sfs-ctl segments --json` print them.
//!
//! docs/sfs-ctl.md states names and units. A number that an older daemon does not print reads as nothing.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Numbers of a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Numbers {
    pub(crate) device: String,
    pub(crate) mount_point: Option<String>,
    pub(crate) transport: Option<Transport>,
    pub(crate) read_only: bool,
    pub(crate) uuid: String,
    pub(crate) label: String,
    pub(crate) space: Space,
    pub(crate) segments: SegmentCounts,
    pub(crate) policies: Option<Policies>,
    pub(crate) groups: Vec<Group>,
    pub(crate) has_failed: bool,
    pub(crate) errors: Vec<ErrorCount>,
    pub(crate) failure: Option<serde_json::Value>,
    pub(crate) mount: Option<Activity>,
    pub(crate) life: Activity,
    pub(crate) latencies: Vec<Latency>,
    pub(crate) cleanings: Vec<Cleaning>,
    pub(crate) wear: Option<Wear>,
    pub(crate) health: Option<Health>,
}

/// Space in blocks of `block_bytes`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Space {
    pub(crate) block_bytes: u64,
    pub(crate) total_blocks: u64,
    pub(crate) available_blocks: u64,
    pub(crate) files: u64,
}

/// Numbers of segments by state.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SegmentCounts {
    pub(crate) blocks: u64,
    pub(crate) clean: u64,
    pub(crate) open: u64,
    pub(crate) sealed: u64,
    pub(crate) drained: u64,
    pub(crate) bad: u64,
    pub(crate) placed: u64,
}

/// Names of the policies.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Policies {
    #[serde(rename = "placement")]
    pub(crate) grouping: String,
    pub(crate) victims: String,
}

/// Transport of the kernel's requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Transport {
    pub(crate) name: String,
}

/// Contents of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Group {
    pub(crate) group: u8,
    pub(crate) segments: u64,
    pub(crate) open_segments: u64,
    pub(crate) live_blocks: u64,
    pub(crate) centre: Option<f64>,
}

/// Errors of one kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ErrorCount {
    pub(crate) kind: serde_json::Value,
    pub(crate) count: u64,
}

/// Counters of a span of time.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Activity {
    pub(crate) counters: BTreeMap<String, u64>,
    pub(crate) log_write_amplification: Option<f64>,
}

impl Activity {
    /// Returns a counter; 0 if there is none of that name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or_default()
    }

    /// Returns the bytes that programs have written.
    pub(crate) fn user_bytes(&self) -> u64 {
        self.counter("user_bytes_written")
    }

    /// Returns the bytes that were written to the device.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.counter("device_bytes_written")
    }
}

/// Latencies of one kind of operations.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Latency {
    pub(crate) operation: String,
    pub(crate) count: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) longest_us: u64,
    pub(crate) total_us: u64,
}

/// A cleaning round.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Cleaning {
    pub(crate) secs_ago: u64,
    pub(crate) victims: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) freed_bytes: u64,
    pub(crate) millis: u64,
}

/// Wear of the device.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wear {
    pub(crate) user_bytes: u64,
    pub(crate) cleaning_bytes: u64,
    pub(crate) metadata_bytes: u64,
    pub(crate) device_bytes: u64,
    pub(crate) days: Vec<Written>,
    pub(crate) months: Vec<Written>,
    pub(crate) erases: Erases,
    pub(crate) device: Option<DeviceWear>,
    pub(crate) sentence: String,
}

/// Bytes written on a day or in a month.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Written {
    #[serde(alias = "month")]
    pub(crate) day: String,
    pub(crate) user_bytes: u64,
    pub(crate) cleaning_bytes: u64,
    pub(crate) metadata_bytes: u64,
    pub(crate) defragmentation_bytes: u64,
}

impl Written {
    /// Returns all bytes of the span, by origin: users, cleaning and defragmentation, metadata.
    pub(crate) fn parts(&self) -> [u64; 3] {
        let moved = self.cleaning_bytes.saturating_add(self.defragmentation_bytes);
        [self.user_bytes, moved, self.metadata_bytes]
    }

    /// Returns the bytes written to the device for each byte of users; `None` without bytes of users.
    pub(crate) fn amplification(&self) -> Option<f64> {
        let all: f64 = self.parts().iter().map(|bytes| *bytes as f64).sum();
        (self.user_bytes > 0).then(|| all / self.user_bytes as f64)
    }
}

/// Erase cycles of the segments.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Erases {
    pub(crate) mean: f64,
    pub(crate) max: u64,
    pub(crate) max_segment: u64,
}

/// Wear as the kernel reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeviceWear {
    pub(crate) source: String,
    pub(crate) life_used_percent: Option<u64>,
    pub(crate) pre_eol: Option<String>,
}

/// Health of the volume and its device.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Health {
    pub(crate) state: String,
    pub(crate) findings: Vec<Finding>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Finding {
    pub(crate) kind: serde_json::Value,
    pub(crate) count: u64,
    pub(crate) sentence: String,
    pub(crate) remedy: String,
}

/// The segments of a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Segments {
    pub(crate) block_bytes: u64,
    pub(crate) segment_blocks: u32,
    pub(crate) tick_blocks: u64,
    pub(crate) segments: Vec<Segment>,
}

/// One segment.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Segment {
    pub(crate) segment: u32,
    pub(crate) state: State,
    pub(crate) group: Option<u8>,
    pub(crate) live_blocks: u32,
    #[serde(default)]
    pub(crate) hotness: Option<f64>,
    #[serde(default)]
    pub(crate) erases: u32,
}

/// State of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Clean,
    Open,
    Sealed,
    Drained,
    Bad,
    Placed,
}

impl State {
    /// Returns the name of the state.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Open => "open",
            Self::Sealed => "sealed",
            Self::Drained => "drained",
            Self::Bad => "bad",
            Self::Placed => "placed",
        }
    }
}

impl Segments {
    /// Returns the bytes that users write in one tick of the write clock.
    pub(crate) fn tick_bytes(&self) -> f64 {
        self.tick_blocks.max(1) as f64 * self.block_bytes as f64
    }

    /// Returns the live blocks of a segment over all its blocks, 0 to 1.
    pub(crate) fn utilization(&self, segment: &Segment) -> f64 {
        f64::from(segment.live_blocks) / f64::from(self.segment_blocks.max(1))
    }
}

/// The files that were written most, as `sfs-ctl hot --json` lists them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Heat {
    /// Bytes written to all files.
    pub(crate) written_bytes: u64,
    pub(crate) most_written_files: Vec<HotFile>,
}

/// A file with its writes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HotFile {
    pub(crate) inode: u64,
    /// Path from the root of the volume; `None` if it was not found.
    pub(crate) path: Option<String>,
    /// Bytes written to the file since it was made.
    pub(crate) written_bytes: u64,
    pub(crate) size_bytes: u64,
}

impl HotFile {
    /// Returns the path, or the inode number in words.
    pub(crate) fn name(&self) -> String {
        self.path.clone().unwrap_or_else(|| format!("inode {}", self.inode))
    }
}

/// Reads a value of JSON.
///
/// # Errors
///
/// The text of the error, which names the field.
pub(crate) fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

impl SegmentCounts {
    /// Returns the number of all segments.
    pub(crate) fn count(&self) -> u64 {
        self.clean + self.open + self.sealed + self.drained + self.bad + self.placed
    }
}
