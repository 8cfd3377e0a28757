//! The wear ledger: bytes written since the volume was made, by origin and by day. Extension 7 of a checkpoint.
//!
//! The record is so short that it fits behind the state of the default policies in the last block of a checkpoint
//! (`docs/decisions/0031-the-wear-ledger.md`). Days are those of the clock, in any order.

mod series;

use super::calendar::{Day, Month};
use super::extension::WEAR_TAG;
use super::wear_bytes::{ORIGINS, WearBytes};
use super::{COUNT_KEPT_MAX, Extension, ExtensionClass, Extensions};
use series::{Entry, Series, take};

/// Number of days whose bytes are exact.
const EXACT_DAYS: usize = 8;

/// Maximum number of days; the bytes of older days count for their months.
const DAYS_MAX: usize = 400;

/// Number of months whose bytes are exact.
const EXACT_MONTHS: usize = 1;

/// Maximum number of months; older bytes count for the totals only.
const MONTHS_MAX: usize = 100;

/// Form of the record.
const FORM: u32 = 1;

/// Speed of writing to the device, to notice that it becomes slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteSpeed {
    /// Microseconds for a MiB when the device was first measured: the mean of [`WriteSpeed::samples`].
    pub first_micros: u32,
    /// Number of measurements in the mean.
    pub samples: u16,
    /// Number of slow measurements in a row, up to now.
    pub slow: u16,
}

/// Bytes written since the volume was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WearLedger {
    /// First day of the ledger.
    pub since: Day,
    /// Bytes since then.
    pub totals: WearBytes,
    /// Number of chunks that mounts have found behind the last checkpoint after a crash.
    pub recovered_chunks: u64,
    /// Speed of writing.
    pub speed: WriteSpeed,
    days: Series,
    months: Series,
}

impl WearLedger {
    /// Tag of the record in the extension area of a checkpoint.
    pub const TAG: u16 = WEAR_TAG;

    /// Returns an empty ledger that begins on day `since`.
    pub fn new(since: Day) -> Self {
        Self { since, ..Self::default() }
    }

    /// Counts bytes that were written on `day`.
    pub fn add(&mut self, day: Day, bytes: WearBytes) {
        if bytes.sum() == 0 {
            return;
        }
        self.totals.add(bytes);
        self.days.add(day.0, bytes);
        for Entry { number, bytes } in self.days.settle(EXACT_DAYS, DAYS_MAX) {
            self.months.add(Day(number).month().0, bytes);
            self.months.settle(EXACT_MONTHS, MONTHS_MAX);
        }
    }

    /// Counts `chunks` chunks with `bytes` that were found behind the last checkpoint: for the newest day, on which that
    /// checkpoint was written, or for `today` in an empty ledger.
    pub fn add_recovered(&mut self, today: Day, bytes: WearBytes, chunks: u64) {
        self.add(self.newest_day().unwrap_or(today), bytes);
        self.recovered_chunks = self.recovered_chunks.saturating_add(chunks);
    }

    /// Returns the newest day on which anything was written.
    pub fn newest_day(&self) -> Option<Day> {
        self.days.last().map(|entry| Day(entry.number))
    }

    /// Returns the bytes of the newest days, ascending: exact for the last eight, otherwise within 11 %.
    pub fn days(&self) -> impl Iterator<Item = (Day, WearBytes)> {
        self.days.iter().map(|entry| (Day(entry.number), entry.bytes))
    }

    /// Returns the bytes of the months that hold older days, ascending, within 11 %.
    pub fn months(&self) -> impl Iterator<Item = (Month, WearBytes)> {
        self.months.iter().map(|entry| (Month(entry.number), entry.bytes))
    }

    /// Returns the content of the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = FORM.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.since.0.to_le_bytes());
        for total in self.totals.values().into_iter().chain([self.recovered_chunks]) {
            bytes.extend_from_slice(&total.to_le_bytes());
        }
        bytes.extend_from_slice(&self.speed.first_micros.to_le_bytes());
        bytes.extend_from_slice(&self.speed.samples.to_le_bytes());
        bytes.extend_from_slice(&self.speed.slow.to_le_bytes());
        for carry in self.days.carry.into_iter().chain(self.months.carry) {
            bytes.extend_from_slice(&carry.to_le_bytes());
        }
        self.days.append_to(&mut bytes);
        self.months.append_to(&mut bytes);
        bytes
    }

    /// Decodes the content of a record; `None` if it is malformed. Bytes that a later program has appended are ignored.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        if u32::from_le_bytes(take(bytes)?) != FORM {
            return None;
        }
        let since = Day(u32::from_le_bytes(take(bytes)?));
        let mut counts = [0; ORIGINS + 1];
        for count in &mut counts {
            *count = u64::from_le_bytes(take(bytes)?);
        }
        if counts.iter().any(|count| *count >= COUNT_KEPT_MAX) {
            return None;
        }
        let [user, cleaning, metadata, defragmentation, recovered_chunks] = counts;
        let totals = WearBytes { user, cleaning, metadata, defragmentation };
        let first_micros = u32::from_le_bytes(take(bytes)?);
        let [samples, slow] = [take(bytes)?, take(bytes)?].map(u16::from_le_bytes);
        let speed = WriteSpeed { first_micros, samples, slow };
        let mut carries = [[0; ORIGINS]; 2];
        for carry in carries.as_flattened_mut() {
            *carry = i64::from_le_bytes(take(bytes)?);
        }
        let days = Series::decode(bytes, carries[0])?;
        let months = Series::decode(bytes, carries[1])?;
        Some(Self { since, totals, recovered_chunks, speed, days, months })
    }

    /// Returns the ledger in `extensions`: `Ok(None)` if there is none.
    ///
    /// # Errors
    ///
    /// `Err(())` if the record is malformed.
    #[expect(
        clippy::result_unit_err,
        reason = "the record is malformed, and nothing more is known"
    )]
    pub fn of(extensions: &Extensions) -> Result<Option<Self>, ()> {
        match extensions.get(Self::TAG) {
            None => Ok(None),
            Some(bytes) => Self::decode(bytes).map(Some).ok_or(()),
        }
    }

    /// Sets the record in `extensions`, if the area has room for it. The record takes at most `room` bytes, header included:
    /// the oldest months and days are left out if necessary, but never the totals and the last days.
    pub fn put_into(mut self, extensions: &mut Extensions, room: usize) {
        let class = ExtensionClass::Keep;
        loop {
            let bytes = self.encode();
            let is_short = Extension::len_of(bytes.len()) <= room;
            if is_short || !self.months.drop_oldest() && !self.days.drop_oldest() {
                extensions.set_if_room(Extension { tag: Self::TAG, class, bytes });
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(user: u64) -> WearBytes {
        WearBytes { user, cleaning: user / 3, metadata: 4096, defragmentation: 0 }
    }

    fn decoded(ledger: &WearLedger) -> WearLedger {
        WearLedger::decode(&ledger.encode()).expect("a record")
    }

    #[test]
    fn recent_days_are_exact_and_the_sums_of_old_ones_stay_right() {
        let mut ledger = WearLedger::new(Day(20_000));
        let mut sum = 0;
        for day in 0..1200 {
            let user = 3_000_000 + u64::from(day) * 7777;
            sum += user;
            ledger.add(Day(20_000 + day), bytes(user));
            ledger = decoded(&ledger);
        }
        assert_eq!(ledger.totals.user, sum);
        assert_eq!(ledger.days().count(), DAYS_MAX);
        for (day, of_day) in ledger.days() {
            let user = 3_000_000 + u64::from(day.0 - 20_000) * 7777;
            if day.0 >= 20_000 + 1200 - EXACT_DAYS as u32 {
                assert_eq!(of_day, bytes(user), "{day}");
            }
            let ratio = of_day.user as f64 / user as f64;
            assert!((0.9..1.11).contains(&ratio), "{day}: {ratio}");
        }
        let listed = ledger.days().map(|(_, of_day)| of_day.user).sum::<u64>()
            + ledger.months().map(|(_, of_month)| of_month.user).sum::<u64>();
        // Rounding keeps what it has left out or added.
        let left = ledger.days.carry[0] + ledger.months.carry[0];
        assert_eq!(listed as i64 + left, sum as i64);
        let ratio = listed as f64 / sum as f64;
        assert!((0.995..1.005).contains(&ratio), "{ratio} of all bytes are listed");
        assert_eq!(ledger.months().count(), 27, "800 days");
    }

    /// A quiet day after a busy one is as exact as any other.
    #[test]
    fn rounding_moves_no_bytes_from_day_to_day() {
        let mut ledger = WearLedger::new(Day(20_000));
        let of_day = |day: u32| if day.is_multiple_of(2) { 90_000_000_000 } else { 1_000_000 };
        (0..100).for_each(|day| ledger.add(Day(20_000 + day), bytes(of_day(day))));
        for (day, listed) in decoded(&ledger).days() {
            let ratio = listed.user as f64 / of_day(day.0 - 20_000) as f64;
            assert!((0.9..1.11).contains(&ratio), "{day}: {ratio}");
        }
    }

    /// Days and months for decades of heavy use fit behind the state of the default policies.
    #[test]
    fn the_longest_record_is_short() {
        let mut ledger = WearLedger::new(Day(20_000));
        for day in 0..366 * 20 {
            let user = 90_000_000_000 + u64::from(day % 13) * 1_000_000_000;
            ledger.add(Day(20_000 + day), bytes(user));
        }
        assert_eq!((ledger.days().count(), ledger.months().count()), (DAYS_MAX, MONTHS_MAX));
        let len = ledger.encode().len();
        assert!(len <= 1800, "{len} bytes");
        assert_eq!(decoded(&ledger), ledger);
    }

    #[test]
    fn a_clock_that_jumps_counts_for_the_days_that_it_shows() {
        let mut ledger = WearLedger::new(Day(100));
        for day in (100..160).chain([9000, 130, 101, 160, 0]) {
            ledger.add(Day(day), bytes(1 << 20));
            ledger = decoded(&ledger);
        }
        let of = |wanted: u32| {
            let mut days = ledger.days();
            days.find(|(day, _)| day.0 == wanted).map_or(0.0, |(_, bytes)| bytes.user as f64)
        };
        let mib = f64::from(1 << 20);
        assert_eq!((of(160), of(9000)), (mib, mib), "recent days are exact");
        for (day, expected) in [(130, 2.0), (101, 2.0), (0, 1.0), (102, 1.0)] {
            assert!((of(day) / mib / expected - 1.0).abs() < 0.11, "day {day}: {}", of(day));
        }
        assert!(ledger.days().map(|(day, _)| day).is_sorted());
        assert_eq!(ledger.totals.user, 65 << 20);
    }

    #[test]
    fn a_record_gives_way_to_its_room_but_keeps_the_totals() {
        let mut ledger = WearLedger::new(Day(1));
        (0..600).for_each(|day| ledger.add(Day(day), bytes(u64::from(day) << 20)));
        let whole = ledger.encode().len();
        for room in [whole + 8, whole - 100, 500, 0] {
            let mut extensions = Extensions::default();
            ledger.clone().put_into(&mut extensions, room);
            let kept = WearLedger::of(&extensions).expect("a record").expect("there is one");
            assert_eq!((kept.totals, kept.since), (ledger.totals, ledger.since));
            let newest: Vec<_> = ledger.days().skip(DAYS_MAX - EXACT_DAYS).collect();
            let skipped = kept.days().count() - EXACT_DAYS;
            assert_eq!(kept.days().skip(skipped).collect::<Vec<_>>(), newest);
            assert!(room == 0 || kept.encode().len() + 8 <= room);
        }
    }

    #[test]
    fn bytes_that_are_no_record_do_not_decode() {
        let mut ledger = WearLedger::new(Day(7));
        (0..20).for_each(|day| ledger.add(Day(3 * day), bytes(1 << 30)));
        let whole = ledger.encode();
        for len in 0..whole.len() {
            assert_eq!(WearLedger::decode(&whole[..len]), None, "{len} bytes");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 127, 128, 253, 254, 255] {
                let mut wrong = whole.clone();
                wrong[at] = value;
                if let Some(mut decoded) = WearLedger::decode(&wrong) {
                    decoded.add(Day(u32::MAX), bytes(u64::MAX / 2));
                    decoded.add(Day(0), bytes(5000));
                    let again = WearLedger::decode(&decoded.encode());
                    assert!(again.is_some() || decoded.totals.user >= COUNT_KEPT_MAX);
                }
            }
        }
        assert_eq!(WearLedger::decode(&[&whole[..], &[1, 2]].concat()), Some(ledger));
    }
}
