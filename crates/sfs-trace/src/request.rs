//! One request of a trace, and its line.

use std::fmt;
use std::str::FromStr;

use crate::error::LineError;
use crate::name;
use crate::operation::TraceOperation;

/// Largest time in a trace: 292 years, whose nanoseconds are a number of 64 bits.
const AT_US_MAX: u64 = i64::MAX as u64 / 1000;

/// Request of a trace. Numbers that an operation does not have are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// Microseconds from the beginning of the recording to the reply. Requests are in the order of their replies, and
    /// two that were answered at the same time may stand in either order.
    pub at_us: u64,
    /// Operation.
    pub operation: TraceOperation,
    /// Inode of the operation; the file itself also for operations on names; for `lookup` and `readdir` the directory.
    pub inode: u64,
    /// Offset in bytes; the new length for a truncation.
    pub offset: u64,
    /// Number of bytes: written, or asked for; of names that are left after an `unlink`.
    pub len: u64,
    /// Microseconds that the daemon took.
    pub took_us: u32,
    /// Error number of the reply; 0 for success. A request that failed has changed nothing.
    pub errno: u16,
    /// Second inode, which [`TraceOperation`] describes.
    pub other: u64,
    /// Name in the directory, if names were recorded.
    pub name: Option<Box<[u8]>>,
    /// New name of a rename, if names were recorded.
    pub other_name: Option<Box<[u8]>>,
}

impl TraceRequest {
    /// Returns a request without a range, a second inode and names that succeeded.
    pub fn new(operation: TraceOperation, inode: u64) -> Self {
        Self {
            at_us: 0,
            operation,
            inode,
            offset: 0,
            len: 0,
            took_us: 0,
            errno: 0,
            other: 0,
            name: None,
            other_name: None,
        }
    }

    /// Returns the mark for `count` requests that were not recorded.
    pub fn lost(at_us: u64, count: u64) -> Self {
        Self { at_us, len: count, ..Self::new(TraceOperation::Lost, 0) }
    }
}

impl fmt::Display for TraceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_us, operation, inode, offset, len, took_us, errno, other, .. } = self;
        write!(f, "{at_us},{operation},{inode},{offset},{len},{took_us},{errno},{other}")?;
        if self.name.is_some() || self.other_name.is_some() {
            f.write_str(",")?;
            name::write(f, self.name.as_deref().unwrap_or_default())?;
        }
        if let Some(other_name) = &self.other_name {
            f.write_str(",")?;
            name::write(f, other_name)?;
        }
        Ok(())
    }
}

impl FromStr for TraceRequest {
    type Err = LineError;

    fn from_str(line: &str) -> Result<Self, LineError> {
        let fields: Vec<&str> = line.splitn(11, ',').collect();
        let (numbers, names) = match fields.len() {
            8..=10 => fields.split_at(8),
            _ => return Err(LineError::Fields),
        };
        fn number<T: FromStr>(field: &str) -> Result<T, LineError> {
            // The standard library accepts a sign.
            match field.bytes().all(|byte| byte.is_ascii_digit()) {
                true => field.parse().map_err(|_| LineError::Number),
                false => Err(LineError::Number),
            }
        }
        let (offset, len): (u64, u64) = (number(numbers[3])?, number(numbers[4])?);
        // The largest file of Linux.
        offset.checked_add(len).filter(|end| *end <= i64::MAX as u64).ok_or(LineError::Range)?;
        let at_us = number(numbers[0])?;
        if at_us > AT_US_MAX {
            return Err(LineError::Range);
        }
        let name = |index: usize| names.get(index).map(|text| name::parse(text)).transpose();
        Ok(Self {
            at_us,
            operation: numbers[1].parse()?,
            inode: number(numbers[2])?,
            offset,
            len,
            took_us: number(numbers[5])?,
            errno: number(numbers[6])?,
            other: number(numbers[7])?,
            name: name(0)?,
            other_name: name(1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_writing_and_reading() {
        let plain = TraceRequest {
            at_us: 12,
            offset: 4096,
            len: 100,
            took_us: 7,
            errno: 28,
            ..TraceRequest::new(TraceOperation::Write, 131)
        };
        assert_eq!(plain.to_string(), "12,write,131,4096,100,7,28,0");
        let named = TraceRequest {
            other: 1,
            name: Some(b"a,b\n%\xff".as_slice().into()),
            other_name: Some(b"".as_slice().into()),
            ..TraceRequest::new(TraceOperation::Rename, 5)
        };
        assert_eq!(named.to_string(), "0,rename,5,0,0,0,0,1,a%2Cb%0A%25%FF,");
        for request in [plain, named, TraceRequest::lost(9, 3)] {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        for operation in TraceOperation::ALL {
            assert_eq!(operation.name().parse(), Ok(*operation));
        }
    }

    #[test]
    fn malformed_lines_are_refused() {
        for (line, reason) in [
            ("", LineError::Fields),
            ("1,write,1,0,0,0,0", LineError::Fields),
            ("1,write,1,0,0,0,0,0,a,b,c", LineError::Fields),
            ("+1,write,1,0,0,0,0,0", LineError::Number),
            ("1,write,-1,0,0,0,0,0", LineError::Number),
            ("1,write,,0,0,0,0,0", LineError::Number),
            ("1,write,1,0,0,0,65536,0", LineError::Number),
            ("1,fly,1,0,0,0,0,0", LineError::Operation),
            ("1,write,1,9223372036854775807,1,0,0,0", LineError::Range),
            ("1,write,1,18446744073709551615,1,0,0,0", LineError::Range),
            ("9223372036854776,write,1,0,0,0,0,0", LineError::Range),
            ("1,create,1,0,0,0,0,0,%4", LineError::Name),
            ("1,create,1,0,0,0,0,0,a b", LineError::Name),
        ] {
            assert_eq!(line.parse::<TraceRequest>(), Err(reason), "{line}");
        }
    }
}
