//! Integers, names and text in the contents of objects, little-endian.

use crate::name::{Epoch, ObjectName};

/// Bytes that are being written.
#[derive(Default)]
pub(crate) struct Encoder(pub(crate) Vec<u8>);

impl Encoder {
    pub(crate) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn number(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn text(&mut self, value: &str) {
        self.number(value.len() as u64);
        self.0.extend(value.as_bytes());
    }

    /// Writes a kind (1 byte), the epoch and the number.
    pub(crate) fn name(&mut self, name: ObjectName) {
        let (kind, epoch, number) = name.parts();
        self.byte(kind);
        self.number(epoch.0);
        self.number(number);
    }

    pub(crate) fn names(&mut self, names: &[ObjectName]) {
        self.number(names.len() as u64);
        names.iter().for_each(|name| self.name(*name));
    }
}

/// Bytes that are being read. Each method returns `None` at the end, or for a value that no writer writes.
pub(crate) struct Decoder<'a>(pub(crate) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.number()?).ok()?;
        String::from_utf8(self.bytes(len)?.to_vec()).ok()
    }

    pub(crate) fn name(&mut self) -> Option<ObjectName> {
        ObjectName::from_parts(self.byte()?, Epoch(self.number()?), self.number()?)
    }

    pub(crate) fn names(&mut self) -> Option<Vec<ObjectName>> {
        let count = self.number()?;
        (0..count).map(|_| self.name()).collect()
    }
}
