//! The state of the segments of a volume: as a message of the control socket, in columns and parts, and as
//! `sfs-ctl segments` prints it.

use serde::{Deserialize, Serialize};
use sfs_core::Volume;
use sfs_core::format::SegmentState;
use sfs_core::request::SegmentStatus;

/// Maximum number of segments in a part. The message of a part has at most 48 bytes for each segment, so 768 KiB.
pub(crate) const PART_SEGMENTS_MAX: usize = 16 << 10;

/// Character for "no group" in [`SegmentsMessage::groups`].
const NO_GROUP: char = '-';

/// Neighbouring segments, as the daemon sends them: a column for each property.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SegmentsMessage {
    /// Number of all segments of the volume.
    pub segment_count: u32,
    /// Number of blocks in a segment.
    pub segment_blocks: u32,
    /// Address of the volume's first segment.
    pub segment_first: u64,
    /// Time on the write clock, in ticks.
    pub now: u32,
    /// Log2 of the number of blocks in a tick.
    pub tick_blocks_log2: u32,
    /// Number of the first segment of the part.
    pub first: u32,
    /// States: for each segment the first letter of its state, in upper case.
    pub states: String,
    /// Groups: a digit for each segment, the number of the head that wrote it; "-" for none.
    pub groups: String,
    /// Numbers of live blocks.
    pub live_blocks: Vec<u32>,
    /// Mean modification times of the live data, in ticks; null without live data.
    pub modified: Vec<Option<u32>>,
    /// Hotness of the live data, in writes a tick, to three digits; null without live data.
    pub hotness: Vec<Option<f32>>,
    /// Numbers of erase cycles since the volume was made.
    pub erases: Vec<u32>,
}

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentReport {
    /// Number of the segment.
    pub segment: u32,
    /// State: `"clean"`, `"open"`, `"sealed"`, `"drained"`, `"bad"` or `"placed"`.
    pub state: StateName,
    /// Number of the head that wrote the segment, 0 for metadata; `None` if the segment is not used.
    pub group: Option<u8>,
    /// Number of live blocks.
    pub live_blocks: u32,
    /// Mean modification time of the live data, in ticks of the write clock; `None` without live data.
    pub modified: Option<u32>,
    /// Hotness of the live data, in writes a tick; `None` without live data.
    pub hotness: Option<f32>,
    /// Number of erase cycles since the volume was made.
    pub erases: u32,
}

/// All segments of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentsReport {
    /// Version of the names.
    pub version: u32,
    /// Path of the device.
    pub device: String,
    /// Number of bytes in a block.
    pub block_bytes: u64,
    /// Number of blocks in a segment.
    pub segment_blocks: u32,
    /// Address of the first segment, in blocks.
    pub segment_first: u64,
    /// Time on the write clock, in ticks.
    pub now: u32,
    /// Number of blocks in a tick.
    pub tick_blocks: u64,
    /// The segments, ascending by number.
    pub segments: Vec<SegmentReport>,
}

/// Name of a state in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names of docs/GLOSSARY.md")]
pub enum StateName {
    Clean,
    Open,
    Sealed,
    Drained,
    Bad,
    Placed,
}

/// States with their letters in a message.
const LETTERS: [(StateName, char); 6] = [
    (StateName::Clean, 'C'),
    (StateName::Open, 'O'),
    (StateName::Sealed, 'S'),
    (StateName::Drained, 'D'),
    (StateName::Bad, 'B'),
    (StateName::Placed, 'P'),
];

impl From<SegmentState> for StateName {
    fn from(state: SegmentState) -> Self {
        match state {
            SegmentState::Clean => Self::Clean,
            SegmentState::Open => Self::Open,
            SegmentState::Sealed => Self::Sealed,
            SegmentState::Drained => Self::Drained,
            SegmentState::Bad => Self::Bad,
            SegmentState::InPlace => Self::Placed,
        }
    }
}

/// Returns the letter of a state in a message.
fn letter(state: StateName) -> char {
    let of_state = |&&(known, _): &&(StateName, char)| known == state;
    LETTERS.iter().find(of_state).map_or('?', |(_, letter)| *letter)
}

/// Returns the state that a letter means.
fn state_of(letter: char) -> Option<StateName> {
    LETTERS.iter().find(|(_, known)| *known == letter).map(|(state, _)| *state)
}

impl SegmentsMessage {
    /// Makes the message of the segments of `volume` from `first` on, at most [`PART_SEGMENTS_MAX`].
    pub(crate) fn of(volume: &Volume, first: u32) -> Self {
        let part = volume.segments(first, PART_SEGMENTS_MAX);
        let columns = part.segments.iter();
        let digit = |segment: &SegmentStatus| {
            segment.head.and_then(|head| char::from_digit(head.0.into(), 10)).unwrap_or(NO_GROUP)
        };
        Self {
            segment_count: part.segment_count,
            segment_blocks: part.segment_blocks,
            segment_first: part.segment_first,
            now: part.now,
            tick_blocks_log2: part.tick_blocks_log2,
            first,
            states: columns.clone().map(|segment| letter(segment.state.into())).collect(),
            groups: columns.clone().map(digit).collect(),
            live_blocks: columns.clone().map(|segment| segment.live_blocks).collect(),
            modified: columns.clone().map(|segment| segment.modified).collect(),
            hotness: columns.clone().map(|segment| segment.hotness.map(three_digits)).collect(),
            erases: columns.map(|segment| segment.erases.into()).collect(),
        }
    }

    /// Returns the segments of the message, or `None` if its columns do not fit together.
    fn segments(&self) -> Option<Vec<SegmentReport>> {
        let len = self.live_blocks.len();
        let lens = [self.modified.len(), self.hotness.len(), self.erases.len()];
        let texts = [self.states.chars().count(), self.groups.chars().count()];
        if lens.iter().chain(&texts).any(|other| *other != len) {
            return None;
        }
        let letters = self.states.chars().zip(self.groups.chars());
        let segment = |(at, (state, group)): (usize, (char, char))| {
            Some(SegmentReport {
                segment: self.first.checked_add(at as u32)?,
                state: state_of(state)?,
                group: group.to_digit(10).map(|digit| digit as u8),
                live_blocks: self.live_blocks[at],
                modified: self.modified[at],
                hotness: self.hotness[at],
                erases: self.erases[at],
            })
        };
        letters.enumerate().map(segment).collect()
    }
}

impl SegmentsReport {
    /// Version of the names.
    const VERSION: u32 = 1;

    /// Asks `ask` for one part after the other, from a segment on each, and joins them. `None` if a part does not fit
    /// the first one: the volume has another size, or the answers are not sound.
    ///
    /// # Errors
    ///
    /// The errors of `ask`.
    pub(crate) fn collect<E>(
        device: &str,
        mut ask: impl FnMut(u32) -> Result<SegmentsMessage, E>,
    ) -> Result<Option<Self>, E> {
        let first = ask(0)?;
        let mut all = Self {
            version: Self::VERSION,
            device: device.to_owned(),
            block_bytes: sfs_device::BLOCK_SIZE as u64,
            segment_blocks: first.segment_blocks,
            segment_first: first.segment_first,
            now: first.now,
            tick_blocks: 1_u64.checked_shl(first.tick_blocks_log2).unwrap_or(u64::MAX),
            segments: Vec::new(),
        };
        let count = first.segment_count;
        let mut part = first;
        loop {
            let next = all.segments.len() as u32;
            let Some(segments) = part.segments() else { return Ok(None) };
            let is_sound =
                !segments.is_empty() && part.first == next && part.segment_count == count;
            if !is_sound || segments.len() > (count - next) as usize {
                return Ok(None);
            }
            all.segments.extend(segments);
            all.now = part.now;
            if all.segments.len() == count as usize {
                return Ok(Some(all));
            }
            part = ask(all.segments.len() as u32)?;
        }
    }

    /// Returns the report as one JSON object, with a line for each segment.
    pub fn to_json(&self) -> String {
        let json = |segment| serde_json::to_string(segment).expect("numbers and names are JSON");
        let lines: Vec<String> = self.segments.iter().map(json).collect();
        let empty = Self { segments: Vec::new(), ..self.clone() };
        let head = serde_json::to_string(&empty).expect("numbers and text are JSON");
        let head = head.strip_suffix("[]}").expect("the segments are the last field");
        format!("{head}[\n{}\n]}}", lines.join(",\n"))
    }
}

/// Rounds to three significant digits, so that the message is short.
fn three_digits(value: f64) -> f32 {
    format!("{value:.2e}").parse().unwrap_or(f32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(first: u32, len: usize, count: u32) -> SegmentsMessage {
        SegmentsMessage {
            segment_count: count,
            segment_blocks: 256,
            first,
            states: "S".repeat(len),
            groups: "8".repeat(len),
            live_blocks: vec![u32::MAX; len],
            modified: vec![Some(u32::MAX); len],
            hotness: vec![Some(three_digits(1.0 / 7e9)); len],
            erases: vec![u32::MAX; len],
            ..SegmentsMessage::default()
        }
    }

    #[test]
    fn the_message_of_a_part_is_bounded() {
        let longest = message(0, PART_SEGMENTS_MAX, 1 << 24);
        let len = serde_json::to_string(&longest).expect("JSON").len();
        // Far below the longest reply that a client takes.
        assert!(len <= PART_SEGMENTS_MAX * 48 + 1024, "{len} bytes");
    }

    #[test]
    fn parts_are_joined_and_answers_that_do_not_fit_are_refused() {
        let all = SegmentsReport::collect("d", |first| {
            Ok::<_, ()>(message(first, 3.min(10 - first as usize), 10))
        });
        let report = all.expect("no error").expect("sound");
        let numbers: Vec<u32> = report.segments.iter().map(|segment| segment.segment).collect();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        let parsed: SegmentsReport = serde_json::from_str(&report.to_json()).expect("JSON");
        assert_eq!(parsed, report);
        let refused = |part: fn(u32) -> SegmentsMessage| {
            let outcome = SegmentsReport::collect("d", |first| Ok::<_, ()>(part(first)));
            assert_eq!(outcome, Ok(None));
        };
        refused(|first| message(first, 0, 10));
        refused(|_| message(0, 3, 10));
        refused(|first| message(first, 3, 10 + first));
        refused(|first| message(first, 11, 10));
        refused(|first| SegmentsMessage { erases: vec![0], ..message(first, 3, 10) });
        refused(|first| SegmentsMessage { states: "S?S".into(), ..message(first, 3, 10) });
    }

    #[test]
    fn hotness_is_rounded_to_three_digits() {
        assert_eq!(serde_json::to_string(&three_digits(0.012_345)).expect("JSON"), "0.0123");
        assert_eq!(serde_json::to_string(&three_digits(1.0 / 3e9)).expect("JSON"), "3.33e-10");
        assert_eq!(three_digits(0.0), 0.0);
    }
}
