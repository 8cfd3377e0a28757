//! Names of objects: claims of epochs, and the log objects, manifests and joined objects of each epoch.

use std::fmt;
use std::str::FromStr;

/// Number of an epoch, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Largest number of an epoch, or of an object in one. No writer comes near it, and sums of numbers do not overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 56;

/// Name of an object below the prefix of its volume. Numbers count from 1.
///
/// As text (`Display`, `FromStr`) a name has sixteen hexadecimal digits for each number, so names of one kind sort by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectName {
    /// The claim of an epoch.
    Claim(Epoch),
    /// A log object, or the seal of the log.
    Log(Epoch, u64),
    /// A manifest, or the seal of the manifests.
    Manifest(Epoch, u64),
    /// An object in which the writer has joined log objects.
    Data(Epoch, u64),
}

impl ObjectName {
    /// Returns the number of the kind in the bytes of objects, the epoch, and the number, which is 0 for a claim.
    pub(crate) fn parts(self) -> (u8, Epoch, u64) {
        match self {
            Self::Claim(epoch) => (1, epoch, 0),
            Self::Log(epoch, number) => (2, epoch, number),
            Self::Manifest(epoch, number) => (3, epoch, number),
            Self::Data(epoch, number) => (4, epoch, number),
        }
    }

    /// Returns the name with these parts, if there is one.
    pub(crate) fn from_parts(kind: u8, epoch: Epoch, number: u64) -> Option<Self> {
        Some(match kind {
            1 if number == 0 => Self::Claim(epoch),
            2 => Self::Log(epoch, number),
            3 => Self::Manifest(epoch, number),
            4 => Self::Data(epoch, number),
            _ => return None,
        })
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(epoch) => write!(f, "claim/{:016x}", epoch.0),
            Self::Log(epoch, number) => write!(f, "{:016x}/log/{number:016x}", epoch.0),
            Self::Manifest(epoch, number) => write!(f, "{:016x}/manifest/{number:016x}", epoch.0),
            Self::Data(epoch, number) => write!(f, "{:016x}/data/{number:016x}", epoch.0),
        }
    }
}

/// The text is not the name of an object of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of an object of a volume")]
pub struct ForeignName;

impl FromStr for ObjectName {
    type Err = ForeignName;

    fn from_str(text: &str) -> Result<Self, ForeignName> {
        let mut parts = text.split('/');
        let mut part = || parts.next().ok_or(ForeignName);
        let name = match part()? {
            "claim" => Self::Claim(Epoch(number(part()?)?)),
            epoch => {
                let epoch = Epoch(number(epoch)?);
                match part()? {
                    "log" => Self::Log(epoch, number(part()?)?),
                    "manifest" => Self::Manifest(epoch, number(part()?)?),
                    "data" => Self::Data(epoch, number(part()?)?),
                    _ => return Err(ForeignName),
                }
            }
        };
        if parts.next().is_none() { Ok(name) } else { Err(ForeignName) }
    }
}

/// Reads a number as it is printed: exactly sixteen lower-case digits, and not zero.
fn number(digits: &str) -> Result<u64, ForeignName> {
    let is_printed =
        digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match u64::from_str_radix(digits, 16) {
        Ok(number) if is_printed && number > 0 => Ok(number),
        _ => Err(ForeignName),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_printed_and_sort_by_number() {
        let epoch = Epoch(0x1f);
        let names = [
            ObjectName::Claim(epoch),
            ObjectName::Log(epoch, 9),
            ObjectName::Manifest(epoch, 10),
            ObjectName::Data(epoch, u64::MAX),
        ];
        for name in names {
            assert_eq!(name.to_string().parse(), Ok(name));
            let (kind, epoch, number) = name.parts();
            assert_eq!(ObjectName::from_parts(kind, epoch, number), Some(name));
        }
        assert_eq!(names[1].to_string(), "000000000000001f/log/0000000000000009");
        assert_eq!(ObjectName::from_parts(1, epoch, 1), None);
        assert_eq!(ObjectName::from_parts(5, epoch, 1), None);
        assert!(ObjectName::Log(epoch, 9).to_string() < ObjectName::Log(epoch, 16).to_string());
    }

    #[test]
    fn other_names_are_refused() {
        let zero = "0000000000000000";
        let one = "0000000000000001";
        for text in [
            String::new(),
            "claim".into(),
            format!("claim/{zero}"),
            format!("claim/{one}/"),
            format!("{one}/log/1"),
            format!("{one}/seal/{one}"),
            format!("{one}/log/000000000000000A"),
            format!("{one}/log/+00000000000000a"),
        ] {
            assert_eq!(text.parse::<ObjectName>(), Err(ForeignName), "{text}");
        }
    }
}
