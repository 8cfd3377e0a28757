//! Names in a trace: bytes other than letters, digits and a few marks are written as `%` and two hexadecimal digits.

use std::fmt::{self, Write};

use crate::error::LineError;

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-+@~".contains(&byte)
}

/// Writes `name`.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, name: &[u8]) -> fmt::Result {
    name.iter().try_for_each(|&byte| match is_plain(byte) {
        true => f.write_char(byte.into()),
        false => write!(f, "%{byte:02X}"),
    })
}

/// Reads a name.
pub(crate) fn parse(text: &str) -> Result<Box<[u8]>, LineError> {
    let mut name = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let plain = match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = digit().zip(digit()).ok_or(LineError::Name)?;
                (high * 16 + low) as u8
            }
            byte if is_plain(byte) => byte,
            _ => return Err(LineError::Name),
        };
        name.push(plain);
    }
    Ok(name.into())
}
