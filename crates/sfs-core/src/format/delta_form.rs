//! Delta forms: the two encodings of changes, by format version.

/// The encoding of changes, the same for all chunks of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeltaForm {
    /// Version 1: the number of the kind, then the fields.
    Plain,
    /// Version 2: kind, class and length, then the fields.
    Tagged,
}
