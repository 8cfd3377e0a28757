//! The hotness histogram: segments by the time after which their data is overwritten.
//!
//! Hotness is a number of writes a tick (SFS, FAST 2012). Its inverse, in bytes that users write meanwhile, says the same
//! in a unit that people know: data is overwritten after so many bytes of writing to the volume. Bins are octaves.

use crate::model::{Group, Segments};

/// Largest number of bins.
const BINS_MAX: usize = 24;

/// Histogram of the segments with live data.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HotnessHistogram {
    /// Log2 of the bytes at the begin of the first bin: the hottest data.
    pub(crate) first_log2: i32,
    pub(crate) bins: Vec<Bin>,
    /// Centres of the groups: number and position, in bins from the begin of the first one.
    pub(crate) centres: Vec<(u8, f64)>,
    /// `true` if the grouping policy has stated the centres; otherwise they are the means of the segments.
    pub(crate) has_policy_centres: bool,
}

/// Bin of an octave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bin {
    pub(crate) segments: u64,
    /// Number of segments of each group, by group.
    pub(crate) groups: [u64; 16],
}

impl Bin {
    /// Returns the group with most segments.
    pub(crate) fn main_group(&self) -> u8 {
        let most = (0..16).max_by_key(|group| (self.groups[*group], usize::MAX - group));
        most.unwrap_or(0) as u8
    }
}

impl HotnessHistogram {
    /// Makes the histogram of `segments`; `groups` may have the centres.
    pub(crate) fn new(segments: &Segments, groups: &[Group]) -> Self {
        let tick = segments.tick_bytes();
        let log2_of = |hotness: f64| (tick / hotness).log2();
        let placed: Vec<(u8, f64)> = segments
            .segments
            .iter()
            .filter_map(|segment| Some((segment.group?, segment.hotness.filter(|hot| *hot > 0.0)?)))
            .map(|(group, hotness)| (group, log2_of(hotness)))
            .filter(|(_, log2)| log2.is_finite())
            .collect();
        let Some(first) = placed.iter().map(|(_, log2)| log2.floor() as i32).min() else {
            return Self::default();
        };
        let last = placed.iter().map(|(_, log2)| log2.floor() as i32).max().unwrap_or(first);
        let len = ((last - first) as usize + 1).min(BINS_MAX);
        let mut bins = vec![Bin::default(); len];
        for (group, log2) in &placed {
            let bin = &mut bins[((log2.floor() as i32 - first) as usize).min(len - 1)];
            bin.segments += 1;
            bin.groups[usize::from(*group).min(15)] += 1;
        }
        let position = |log2: f64| (log2 - f64::from(first)).clamp(0.0, len as f64);
        let stated: Vec<(u8, f64)> = groups
            .iter()
            .filter_map(|group| Some((group.group, group.centre.filter(|centre| *centre > 0.0)?)))
            .map(|(group, centre)| (group, position(log2_of(centre))))
            .collect();
        let has_policy_centres = !stated.is_empty();
        let means = || {
            let mean = |group: u8| {
                let of_group = placed.iter().filter(|(other, _)| *other == group);
                let (count, sum) =
                    of_group.fold((0.0, 0.0), |(count, sum), (_, log2)| (count + 1.0, sum + log2));
                (count > 0.0).then(|| (group, position(sum / count)))
            };
            (0..16).filter_map(mean).collect()
        };
        let centres = if has_policy_centres { stated } else { means() };
        Self { first_log2: first, bins, centres, has_policy_centres }
    }

    /// Returns the groups of data from hot to cold, by their centres.
    pub(crate) fn hot_to_cold(&self) -> Vec<u8> {
        let mut centres = self.centres.clone();
        centres.sort_by(|a, b| a.1.total_cmp(&b.1));
        centres.into_iter().map(|(group, _)| group).filter(|group| *group != 0).collect()
    }

    /// Returns the largest number of segments in a bin.
    pub(crate) fn most(&self) -> u64 {
        self.bins.iter().map(|bin| bin.segments).max().unwrap_or(0)
    }

    /// Returns the number of bytes at the begin of a bin.
    pub(crate) fn bytes_at(&self, bin: usize) -> f64 {
        f64::from(self.first_log2 + bin as i32).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read;

    #[test]
    fn segments_are_binned_by_the_bytes_until_they_are_overwritten() {
        let text = r#"{"block_bytes":4096,"segment_blocks":256,"tick_blocks":1,"segments":[
            {"segment":0,"state":"sealed","group":1,"live_blocks":9,"hotness":1.0},
            {"segment":1,"state":"sealed","group":1,"live_blocks":9,"hotness":0.9},
            {"segment":2,"state":"sealed","group":2,"live_blocks":9,"hotness":0.125},
            {"segment":3,"state":"clean","group":null,"live_blocks":0}]}"#;
        let segments: Segments = read(text).expect("JSON");
        let histogram = HotnessHistogram::new(&segments, &[]);
        assert_eq!(histogram.first_log2, 12);
        let counts: Vec<u64> = histogram.bins.iter().map(|bin| bin.segments).collect();
        assert_eq!(counts, [2, 0, 0, 1]);
        assert_eq!((histogram.bins[0].main_group(), histogram.bins[3].main_group()), (1, 2));
        assert_eq!(histogram.bytes_at(3), 32_768.0);
        assert_eq!(histogram.centres.len(), 2);
        assert_eq!(histogram.centres[1], (2, 3.0));
        assert_eq!(histogram.hot_to_cold(), [1, 2]);
        assert!(!histogram.has_policy_centres);
        let groups = [Group { group: 1, centre: Some(0.5), ..Group::default() }];
        let histogram = HotnessHistogram::new(&segments, &groups);
        assert_eq!((histogram.centres, histogram.has_policy_centres), (vec![(1, 1.0)], true));
        assert_eq!(HotnessHistogram::new(&Segments::default(), &[]).bins, []);
    }
}
