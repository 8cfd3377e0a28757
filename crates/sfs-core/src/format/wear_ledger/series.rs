//! Written bytes by day or by month: exact for the newest entries, rounded by up to 11 % for the others.
//!
//! A rounded value takes one byte. What rounding has added or left out so far decides whether the next value is rounded up or
//! down, so the sum over many entries stays right.

use crate::format::wear_bytes::{ORIGINS, WearBytes};

/// Codes per octave of a rounded value.
const STEPS: f64 = 7.0;

/// Unit of rounded values in bytes; half of it is the least value that does not round to 0.
const UNIT_BYTES: f64 = 4096.0;

/// Highest code of a rounded value.
const CODE_MAX: u8 = 253;

/// Byte before a rounded entry with bytes of defragmentation.
const HAS_DEFRAGMENTATION: u8 = 254;

/// Byte before a rounded entry whose number does not follow the one before; the difference comes next.
const GAP: u8 = 255;

/// Number of entries of a kind that no ledger reaches. A longer record is forged, and would take long to shorten.
const ENTRIES_MAX: u16 = 1024;

/// Bytes of one day or month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) number: u32,
    pub(super) bytes: WearBytes,
}

/// Entries, ascending by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Series {
    rounded: Vec<Entry>,
    /// Entries whose numbers are above all rounded ones.
    exact: Vec<Entry>,
    /// Bytes that rounding has left out so far, by origin; negative if it has added some.
    pub(super) carry: [i64; ORIGINS],
}

impl Series {
    /// Returns all entries, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.rounded.iter().chain(&self.exact)
    }

    /// Returns the newest entry.
    pub(super) fn last(&self) -> Option<&Entry> {
        self.exact.last().or_else(|| self.rounded.last())
    }

    /// Adds `bytes` to entry `number`, which may be any.
    pub(super) fn add(&mut self, number: u32, bytes: WearBytes) {
        let is_rounded = self.rounded.last().is_some_and(|last| number <= last.number);
        let entries = if is_rounded { &mut self.rounded } else { &mut self.exact };
        let at = entries.partition_point(|entry| entry.number < number);
        if entries.get(at).is_none_or(|entry| entry.number != number) {
            entries.insert(at, Entry { number, bytes: WearBytes::default() });
        }
        entries[at].bytes.add(bytes);
        if is_rounded {
            let sum = entries[at].bytes;
            self.rounded[at].bytes = self.round(sum);
        }
    }

    /// Rounds all but the newest `exact` entries, and removes and returns the oldest of more than `most`.
    pub(super) fn settle(&mut self, exact: usize, most: usize) -> Vec<Entry> {
        while self.exact.len() > exact {
            let Entry { number, bytes } = self.exact.remove(0);
            let bytes = self.round(bytes);
            self.rounded.push(Entry { number, bytes });
        }
        let over = (self.rounded.len() + self.exact.len()).saturating_sub(most);
        self.rounded.drain(..over.min(self.rounded.len())).collect()
    }

    /// Removes the oldest rounded entry; returns whether there was one.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let has_any = !self.rounded.is_empty();
        if has_any {
            self.rounded.remove(0);
        }
        has_any
    }

    /// Returns `bytes` rounded, with the carry.
    fn round(&mut self, bytes: WearBytes) -> WearBytes {
        let mut values = bytes.values();
        for (value, carry) in values.iter_mut().zip(&mut self.carry) {
            let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            let wanted = signed(*value).saturating_add(*carry);
            *value = if signed(*value) > wanted { round_down(*value) } else { round_up(*value) };
            *carry = wanted.saturating_sub(signed(*value));
        }
        WearBytes::of_values(values)
    }

    /// Appends the numbers of entries, and the entries.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        for entries in [&self.rounded, &self.exact] {
            bytes.extend_from_slice(&(entries.len() as u16).to_le_bytes());
        }
        let mut before = None;
        for Entry { number, bytes: values } in &self.rounded {
            if before.is_none_or(|before: u32| before + 1 != *number) {
                bytes.push(GAP);
                append_number(u64::from(number - before.unwrap_or(0)), bytes);
            }
            let codes = values.values().map(encode);
            let has_all = codes[ORIGINS - 1] != 0;
            if has_all {
                bytes.push(HAS_DEFRAGMENTATION);
            }
            bytes.extend_from_slice(&codes[..ORIGINS - usize::from(!has_all)]);
            before = Some(*number);
        }
        for Entry { number, bytes: values } in &self.exact {
            append_number(u64::from(number - before.unwrap_or(0)), bytes);
            values.values().into_iter().for_each(|value| append_number(value, bytes));
            before = Some(*number);
        }
    }

    /// Decodes a series with `carry` from the start of `bytes`, and moves `bytes` behind it; `None` if it is malformed.
    pub(super) fn decode(bytes: &mut &[u8], carry: [i64; ORIGINS]) -> Option<Self> {
        let [rounded, exact] = [take(bytes)?, take(bytes)?].map(u16::from_le_bytes);
        if rounded.max(exact) > ENTRIES_MAX {
            return None;
        }
        let mut series = Self { carry, ..Self::default() };
        let mut before = None;
        for _ in 0..rounded {
            let [mut byte] = take(bytes)?;
            let mut gap = before.map(|_| 1);
            if byte == GAP {
                gap = Some(take_number(bytes)?);
                [byte] = take(bytes)?;
            }
            let has_all = byte == HAS_DEFRAGMENTATION;
            if has_all {
                [byte] = take(bytes)?;
            }
            let [second, third] = take(bytes)?;
            let last = if has_all { take::<1>(bytes)?[0] } else { 0 };
            let codes = [byte, second, third, last];
            if codes.iter().any(|code| *code > CODE_MAX) {
                return None;
            }
            let number = number_after(before, gap?)?;
            let bytes = WearBytes::of_values(codes.map(decode));
            series.rounded.push(Entry { number, bytes });
            before = Some(number);
        }
        for _ in 0..exact {
            let number = number_after(before, take_number(bytes)?)?;
            let mut values = [0; ORIGINS];
            for value in &mut values {
                *value = take_number(bytes)?;
            }
            series.exact.push(Entry { number, bytes: WearBytes::of_values(values) });
            before = Some(number);
        }
        Some(series)
    }
}

/// Returns the number that follows `before` after a `gap`; only the first number may have none.
fn number_after(before: Option<u32>, gap: u64) -> Option<u32> {
    let gap = u32::try_from(gap).ok()?;
    match before {
        None => Some(gap),
        Some(_) if gap == 0 => None,
        Some(before) => before.checked_add(gap),
    }
}

/// Returns the code of a value in bytes.
fn encode(value: u64) -> u8 {
    let octaves = (value as f64 / UNIT_BYTES).log2() + 1.0;
    if octaves < 0.0 { 0 } else { (octaves * STEPS + 1.0).round().min(CODE_MAX.into()) as u8 }
}

/// Returns the largest rounded value that is not above `value`.
fn round_down(value: u64) -> u64 {
    let nearest = decode(encode(value));
    if nearest <= value { nearest } else { decode(encode(value) - 1) }
}

/// Returns the least rounded value that is not below `value`, or the largest one.
fn round_up(value: u64) -> u64 {
    let nearest = decode(encode(value));
    if nearest >= value { nearest } else { decode((encode(value) + 1).min(CODE_MAX)) }
}

/// Returns the value of a code in bytes.
fn decode(code: u8) -> u64 {
    match code {
        0 => 0,
        code => (UNIT_BYTES * (f64::from(code - 1) / STEPS - 1.0).exp2()).round() as u64,
    }
}

/// Takes an array from the start of `bytes`.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (array, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*array)
}

/// Appends a number: seven bits a byte, the lowest first; all but the last byte have the highest bit.
fn append_number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number from the start of `bytes`; `None` above 2^63 - 1.
fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let [byte] = take(bytes)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_to_five_percent_and_stay() {
        assert_eq!((encode(0), decode(0), encode(2000)), (0, 0, 0));
        for code in 1..=CODE_MAX {
            assert_eq!(encode(decode(code)), code);
        }
        for value in [2100u64, 4096, 5_000_000, 123_456_789_012, 1 << 47] {
            let ratio = decode(encode(value)) as f64 / value as f64;
            assert!((0.95..1.053).contains(&ratio), "{value}: {ratio}");
        }
        assert_eq!(encode(u64::MAX), CODE_MAX);
    }

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for number in [0, 1, 127, 128, 300, 1 << 40, (1 << 63) - 1] {
            let mut bytes = Vec::new();
            append_number(number, &mut bytes);
            assert_eq!(take_number(&mut &bytes[..]), Some(number));
            assert_eq!(take_number(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take_number(&mut &[0xff; 12][..]), None);
    }
}
