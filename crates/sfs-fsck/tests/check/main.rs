//! fsck against volumes that this test writes by itself, by the letter of FORMAT.md.

mod findings;
mod forge;
mod fresh;
mod hostile;
mod log;
mod program;
mod repair;
