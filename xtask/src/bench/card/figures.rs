//! The figures of a run: rate, latency, wear, and the life of a card.

use super::{
    load::{Program, Work},
    medium::Wear,
};

/// Size of a flash page, in bytes.
const PAGE: u64 = 4096;

/// Assumed size of the card whose life is computed, in bytes.
pub(super) const CARD_BYTES: f64 = 32e9;

/// Assumed number of times that each page of the card can be programmed.
pub(super) const CYCLES: f64 = 3_000.0;

const DAYS_A_YEAR: f64 = 365.0;

/// Latency of the units of work, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) longest: f64,
}

impl Latency {
    /// Returns `None` without a unit of work.
    pub(super) fn of(work: &Work) -> Option<Self> {
        let mut sorted = work.unit_ns.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        // The smallest duration that so many percent of the units do not exceed.
        let at = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        let ms = |ns: u64| ns as f64 / 1e6;
        Some(Self { p50: ms(at(50)), p99: ms(at(99)), longest: ms(sorted[last]) })
    }
}

/// Returns the work of all programs in units of `program`: a unit of `together` is a thousandth of a day's use.
pub(super) fn units(program: Program, works: &[(Program, Work)]) -> f64 {
    let units = works.iter().map(|(part, work)| {
        let units = work.unit_ns.len() as f64;
        let per_day = program.units_a_day() / part.units_a_day();
        if program == Program::Together { units * per_day } else { units }
    });
    units.sum()
}

/// Wear for each unit of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct UnitWear {
    pub(super) device_bytes: f64,
    /// Flash pages and erases, which only a model counts.
    pub(super) pages: Option<f64>,
    pub(super) erases: Option<f64>,
    /// Years until the card has been written [`CYCLES`] times by the use of each day.
    pub(super) years: Option<f64>,
}

impl UnitWear {
    /// Returns `None` without a unit of work.
    pub(super) fn of(program: Program, wear: Wear, units: f64) -> Option<Self> {
        if units <= 0.0 {
            return None;
        }
        let per_unit = |count: u64| count as f64 / units;
        let worn = wear.flash.map(|flash| {
            // A block that is erased before it is full is worn as a full one.
            (flash.pages * PAGE).max(flash.erases * flash.erase_block_len)
        });
        let years = worn.map(|worn| {
            CARD_BYTES * CYCLES / (per_unit(worn) * program.units_a_day() * DAYS_A_YEAR)
        });
        Some(Self {
            device_bytes: per_unit(wear.device_bytes),
            pages: wear.flash.map(|flash| per_unit(flash.pages)),
            erases: wear.flash.map(|flash| per_unit(flash.erases)),
            years: years.filter(|years| years.is_finite()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::medium::FlashWear, *};

    fn work(unit_ms: impl IntoIterator<Item = u64>) -> Work {
        Work { unit_ns: unit_ms.into_iter().map(|ms| ms * 1_000_000).collect() }
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_units() {
        let latency = Latency::of(&work((1..=200).rev())).expect("units");
        assert_eq!(latency, Latency { p50: 100.0, p99: 198.0, longest: 200.0 });
        let one = Latency::of(&work([7])).expect("a unit");
        assert_eq!(one, Latency { p50: 7.0, p99: 7.0, longest: 7.0 });
        assert_eq!(Latency::of(&Work::default()), None);
    }

    #[test]
    fn work_of_all_programs_is_added_up_as_parts_of_a_day() {
        let half_a_day = vec![
            (Program::Dpkg, work(vec![1; 25])),
            (Program::Image, work([1])),
            (Program::Image, work([1])),
        ];
        assert_eq!(units(Program::Together, &half_a_day), 1_000.0);
        assert_eq!(units(Program::Dpkg, &half_a_day[..1]), 25.0);
    }

    #[test]
    fn a_card_that_is_written_once_a_day_lives_for_its_cycles() {
        let pages = CARD_BYTES as u64 / PAGE;
        let flash = FlashWear { pages, erases: 1, erase_block_len: 4 << 20 };
        let wear = Wear { device_bytes: 1 << 20, flash: Some(flash) };
        let day = Program::Image.units_a_day();
        let worn = UnitWear::of(Program::Image, wear, day).expect("units");
        let years = worn.years.expect("a model");
        assert!((years - CYCLES / DAYS_A_YEAR).abs() < 0.01, "{years}");
        assert_eq!(worn.device_bytes, (1 << 20) as f64 / day);
        assert_eq!(UnitWear::of(Program::Image, wear, 0.0), None);
    }

    #[test]
    fn half_empty_blocks_wear_as_full_ones() {
        let flash = FlashWear { pages: 1, erases: 2, erase_block_len: 4 << 20 };
        let wear = Wear { device_bytes: 0, flash: Some(flash) };
        let years = UnitWear::of(Program::Dpkg, wear, 1.0).and_then(|worn| worn.years);
        let expected = CARD_BYTES * CYCLES / (2.0 * f64::from(4 << 20) * 50.0 * DAYS_A_YEAR);
        assert_eq!(years, Some(expected));
    }
}
