//! Reading the arguments of a request from its bytes, one after the other.
//!
//! Every read is checked against the end of the message, so no bytes make it panic.

use zerocopy::FromBytes;

/// Error of decoding a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The message is shorter than a header, or its length differs from that in the header.
    #[error("the message does not have the length that its header states")]
    Length,
    /// An argument is missing or truncated.
    #[error("the message lacks an argument")]
    Short,
    /// Bytes follow the last argument.
    #[error("the message has bytes after its last argument")]
    Long,
    /// A name is empty, contains a `/`, or does not end with NUL.
    #[error("the message has a name that is empty, contains '/' or has no NUL at its end")]
    Name,
    /// An extension is truncated or longer than the message.
    #[error("the message has an extension that is truncated or too long")]
    Extension,
    /// The opcode is unknown.
    #[error("operation {0} is unknown")]
    Opcode(u32),
}

/// Arguments of a request that have not been read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArgumentReader<'a>(&'a [u8]);

impl<'a> ArgumentReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads the fixed part of an operation.
    pub(crate) fn fixed<T: FromBytes>(&mut self) -> Result<T, Malformed> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Malformed::Short)?;
        self.0 = rest;
        Ok(value)
    }

    /// Reads `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Reads bytes up to a NUL, and skips the NUL.
    pub(crate) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed::Name)?;
        let text = &self.0[..len];
        self.0 = &self.0[len + 1..];
        Ok(text)
    }

    /// Reads the name of a file in its directory.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let name = self.text()?;
        if name.is_empty() || name.contains(&b'/') { Err(Malformed::Name) } else { Ok(name) }
    }

    /// Reads all remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Checks that no bytes remain.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_terminated_and_has_no_slash() {
        let mut arguments = ArgumentReader::new(b"a\0bc\0");
        assert_eq!(arguments.name(), Ok(&b"a"[..]));
        assert_eq!(arguments.name(), Ok(&b"bc"[..]));
        arguments.end().expect("the end");
        for wrong in [&b""[..], b"\0", b"abc", b"a/b\0", b"/\0"] {
            assert_eq!(ArgumentReader::new(wrong).name(), Err(Malformed::Name), "{wrong:?}");
        }
    }

    #[test]
    fn reading_past_the_end_fails() {
        let mut arguments = ArgumentReader::new(&[7; 5]);
        assert_eq!(arguments.fixed::<u64>(), Err(Malformed::Short));
        assert_eq!(arguments.fixed::<u32>(), Ok(0x0707_0707));
        assert_eq!(arguments.bytes(2), Err(Malformed::Short));
        assert_eq!(arguments.end(), Err(Malformed::Long));
        assert_eq!(arguments.rest(), [7]);
    }
}
