//! Taking the arguments of a request out of its bytes.
//!
//! Owns: the position.
//! Promises: what is taken is within the message; nothing panics, whatever the bytes are.
//! Never: knows what an argument is for.

use std::fmt;

use zerocopy::FromBytes;

/// Why bytes are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// There are too few for a header, or not as many as it says.
    Length,
    /// An argument is missing, or is cut off.
    Short,
    /// Something is behind the last argument.
    Long,
    /// A name is empty, or has a `/` or no end.
    Name,
    /// An extension is cut off or longer than the message.
    Extension,
    /// Nobody knows this operation.
    Opcode(u32),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Length => "a message that is not as long as it says",
            Self::Short => "a message that lacks an argument",
            Self::Long => "a message with something behind its last argument",
            Self::Name => "a message with a name that is none",
            Self::Extension => "a message with an extension that does not fit in",
            Self::Opcode(opcode) => return write!(f, "operation {opcode} is not known"),
        };
        f.write_str(what)
    }
}

impl std::error::Error for Malformed {}

/// The arguments of a request that have not been taken yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a>(&'a [u8]);

impl<'a> Arguments<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The fixed part of an operation.
    pub(crate) fn fixed<T: FromBytes>(&mut self) -> Result<T, Malformed> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Malformed::Short)?;
        self.0 = rest;
        Ok(value)
    }

    /// `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Bytes that end with a NUL, without it.
    pub(crate) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed::Name)?;
        let text = &self.0[..len];
        self.0 = &self.0[len + 1..];
        Ok(text)
    }

    /// The name of a file in its directory.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let name = self.text()?;
        if name.is_empty() || name.contains(&b'/') { Err(Malformed::Name) } else { Ok(name) }
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_and_have_no_slash() {
        let mut arguments = Arguments::new(b"a\0bc\0");
        assert_eq!(arguments.name(), Ok(&b"a"[..]));
        assert_eq!(arguments.name(), Ok(&b"bc"[..]));
        arguments.end().expect("nothing is left");
        for wrong in [&b""[..], b"\0", b"abc", b"a/b\0", b"/\0"] {
            assert_eq!(Arguments::new(wrong).name(), Err(Malformed::Name), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_not_there_cannot_be_taken() {
        let mut arguments = Arguments::new(&[7; 5]);
        assert_eq!(arguments.fixed::<u64>(), Err(Malformed::Short));
        assert_eq!(arguments.fixed::<u32>(), Ok(0x0707_0707));
        assert_eq!(arguments.bytes(2), Err(Malformed::Short));
        assert_eq!(arguments.end(), Err(Malformed::Long));
        assert_eq!(arguments.rest(), [7]);
    }
}
