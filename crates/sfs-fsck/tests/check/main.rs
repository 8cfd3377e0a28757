//! Checks and repairs of volumes that `forge` writes, independent of the filesystem, from `docs/FORMAT.md`.

mod access_lists;
mod boot;
mod content_findings;
mod dump;
mod file_count;
mod fixture;
mod forge;
mod forged_volume;
mod fresh;
mod log;
mod misplaced;
mod mutations;
mod name_findings;
mod newer;
mod program;
mod releases;
mod remembered;
mod repair;
mod reservations;
mod superblocks;
mod volume_findings;
mod wear;
