//! The lines of a trace that are no requests: the heading, the properties of the volume, and the end.

use std::fmt;

/// First line of a trace, with the version of the format.
pub const HEADING: &str = "# sfs-trace 1";

/// Line before the first request.
pub const COLUMNS: &str = "us,op,inode,offset,len,took_us,errno,other,name,other_name";

/// State of the volume when the recording began. A reader skips properties that it does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceProperties {
    /// Seconds since 1970.
    pub began_secs: u64,
    /// Bytes for files and metadata.
    pub size_bytes: u64,
    /// Bytes of them that are in use.
    pub used_bytes: u64,
    /// Bytes in a segment.
    pub segment_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// Bytes of the write buffer.
    pub write_buffer_bytes: u64,
    /// Grouping policy.
    pub policy: String,
    /// Victim policy.
    pub victim: String,
}

impl TraceProperties {
    /// Takes a line such as `# size_bytes 123` over. Returns `false` if the number is none.
    pub(crate) fn take(&mut self, line: &str) -> bool {
        let mut words = line.strip_prefix('#').unwrap_or(line).split_whitespace();
        let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return true;
        };
        let number = match name {
            "began_secs" => &mut self.began_secs,
            "size_bytes" => &mut self.size_bytes,
            "used_bytes" => &mut self.used_bytes,
            "segment_bytes" => &mut self.segment_bytes,
            "segments" => &mut self.segments,
            "write_buffer_bytes" => &mut self.write_buffer_bytes,
            "policy" => {
                self.policy = value.to_owned();
                return true;
            }
            "victim" => {
                self.victim = value.to_owned();
                return true;
            }
            _ => return true,
        };
        value.parse().map(|value| *number = value).is_ok()
    }
}

/// Writes the lines before the first request.
impl fmt::Display for TraceProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { began_secs, size_bytes, used_bytes, segment_bytes, .. } = self;
        let Self { segments, write_buffer_bytes, policy, victim, .. } = self;
        writeln!(f, "{HEADING}")?;
        writeln!(f, "# began_secs {began_secs}\n# size_bytes {size_bytes}")?;
        writeln!(f, "# used_bytes {used_bytes}\n# segment_bytes {segment_bytes}")?;
        writeln!(f, "# segments {segments}\n# write_buffer_bytes {write_buffer_bytes}")?;
        writeln!(f, "# policy {policy}\n# victim {victim}")?;
        writeln!(f, "{COLUMNS}")
    }
}

/// Last line of a trace. A trace without this line was cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceEnd {
    /// Number of requests in the trace.
    pub requests: u64,
    /// Number of requests that were not recorded.
    pub lost: u64,
}

impl TraceEnd {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("# end ")?.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (requests, lost) = number().zip(number())?;
        words.next().is_none().then_some(Self { requests, lost })
    }
}

impl fmt::Display for TraceEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# end {} {}", self.requests, self.lost)
    }
}
