//! Sizes as users write and read them, with binary units: 1K is 1024 bytes.
//!
//! Parsing is exact: a text that is not understood, or a size beyond 64 bits, is an error. Printing rounds to one
//! decimal of the largest unit.

use std::fmt;

/// Error of [`parse_size`]: the text is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a size is a number of bytes, or of K, M, G or T (powers of 1024), such as 512M")]
pub struct SizeError;

/// Parses a size in bytes: `4096`, `128K`, `8M`, `8MiB`, `1G`, `2T`.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits_len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, suffix) = text.split_at(digits_len);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(SizeError),
    };
    let number: u64 = digits.parse().map_err(|_| SizeError)?;
    number.checked_mul(1 << shift).ok_or(SizeError)
}

/// Number of bytes that prints with a binary unit: `8 MiB`, `14.9 GiB`.
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let Some((shift, unit)) = units.into_iter().find(|(shift, _)| self.0 >> shift > 0) else {
            return write!(f, "{} bytes", self.0);
        };
        if self.0.is_multiple_of(1 << shift) {
            write!(f, "{} {unit}", self.0 >> shift)
        } else {
            write!(f, "{:.1} {unit}", self.0 as f64 / (1u64 << shift) as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_binary() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("128K"), Ok(131_072));
        assert_eq!(parse_size("8MiB"), Ok(8 << 20));
        assert_eq!(parse_size("2t"), Ok(2 << 40));
    }

    #[test]
    fn malformed_and_overflowing_sizes_are_refused() {
        for text in ["", "M", "-1", "1.5G", "8 M", "8Q", "99999999999999999999", "16777216T"] {
            assert_eq!(parse_size(text), Err(SizeError), "{text:?}");
        }
    }

    #[test]
    fn human_sizes_are_short() {
        let shown = |bytes| Human(bytes).to_string();
        assert_eq!(shown(100), "100 bytes");
        assert_eq!(shown(8 << 20), "8 MiB");
        assert_eq!(shown((15 << 30) - (1 << 27)), "14.9 GiB");
    }
}
