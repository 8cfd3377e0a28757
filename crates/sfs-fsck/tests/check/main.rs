//! fsck against volumes that this test writes by itself, by the letter of FORMAT.md.

mod dump;
mod findings;
mod forge;
mod fresh;
mod hostile;
mod later;
mod log;
mod misplaced;
mod program;
mod releases;
mod remembered;
mod repair;
mod superblocks;
