//! Records of pax extended headers: `length key=value\n`, whose values may have any bytes.
//!
//! The parser of the crate `tar` divides at line breaks, and so loses records after a binary extended attribute.

use std::collections::BTreeMap;

use sfs_core::format::Timestamp;

use crate::fill::FillReason;
use crate::fill::tree_writer::Xattrs;

/// Prefix of the keys of extended attributes.
const XATTR: &[u8] = b"SCHILY.xattr.";

/// Records by key.
#[derive(Clone, Debug, Default)]
pub(super) struct PaxRecords(BTreeMap<Vec<u8>, Vec<u8>>);

impl PaxRecords {
    /// Adds the records in `bytes`, which replace earlier ones of the same keys.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Result<(), FillReason> {
        let wrong = FillReason::Number("pax header");
        while !bytes.is_empty() && bytes[0] != 0 {
            let record = (|| {
                let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
                let len: usize = str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
                let record = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
                let equals = record.iter().position(|byte| *byte == b'=')?;
                Some((&record[..equals], &record[equals + 1..], len))
            })();
            let Some((key, value, len)) = record else { return Err(wrong) };
            self.0.insert(key.to_vec(), value.to_vec());
            bytes = &bytes[len..];
        }
        Ok(())
    }

    /// Returns the value of `key`, which counts as missing if it is empty.
    pub(super) fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key.as_bytes()).map(Vec::as_slice).filter(|value| !value.is_empty())
    }

    /// Returns the number with `key`.
    pub(super) fn number(&self, key: &'static str) -> Result<Option<u64>, FillReason> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        number.map(Some).ok_or(FillReason::Number(key))
    }

    /// Returns the time with `key`: seconds with a fraction.
    pub(super) fn time(&self, key: &'static str) -> Result<Option<Timestamp>, FillReason> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let parsed = str::from_utf8(value).ok().and_then(parse_time);
        parsed.map(Some).ok_or(FillReason::Number(key))
    }

    /// Returns the extended attributes, in the order of their names.
    pub(super) fn xattrs(&self) -> Xattrs {
        let named = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            Some((key.strip_prefix(XATTR)?.to_vec(), value.clone()))
        };
        self.0.iter().filter_map(named).collect()
    }

    /// Returns whether a key begins with `prefix`.
    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        self.0.keys().any(|key| key.starts_with(prefix.as_bytes()))
    }
}

fn parse_time(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let secs: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    match whole.starts_with('-') && nanos > 0 {
        true => Some(Timestamp { secs: secs.checked_sub(1)?, nanos: 1_000_000_000 - nanos }),
        false => Some(Timestamp { secs, nanos }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_have_line_breaks_and_times_may_be_negative() {
        let mut records = PaxRecords::default();
        records.add(b"29 SCHILY.xattr.user.x=a\nb=\0\n14 mtime=-1.5\n").expect("records");
        assert_eq!(records.xattrs(), [(b"user.x".to_vec(), b"a\nb=\0".to_vec())]);
        let time = records.time("mtime").expect("a time");
        assert_eq!(time, Some(Timestamp { secs: -2, nanos: 500_000_000 }));
    }

    #[test]
    fn malformed_records_are_refused() {
        for bytes in
            [&b"5 a=b\n"[..], b"999999999999999999999 a=b\n", b"x a=b\n", b"6 a=bc", b"0 \n"]
        {
            assert!(PaxRecords::default().add(bytes).is_err(), "{bytes:?}");
        }
    }
}
