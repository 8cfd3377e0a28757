//! The cache of a new volume on another device.
//!
//! The device is checked before the volume is made, and written after it: a failed run leaves a volume without its cache, which
//! mounts.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;
use sfs_cache::{CacheHeader, IndexMemory, MakeOptions, PolicyName, SectionWish};
use sfs_core::format::DataLayout;
use sfs_device::{Access, BLOCK_SIZE, Device, FileDevice};
use sfs_system::parse_size;
use uuid::Uuid;

use crate::in_use::refuse_in_use;
use crate::signatures::{Ends, detect};
use crate::wipe::wipe_signatures;
use crate::{MkfsError, MkfsOptions};

/// `SIZE:EXTENT` of a section, both in bytes; `rest:EXTENT` for all that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionSize(SectionWish);

impl SectionSize {
    /// Returns the section that the text asks for.
    pub fn wish(self) -> SectionWish {
        self.0
    }
}

impl FromStr for SectionSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "give SIZE:EXTENT, as in 8G:16K, or rest:EXTENT";
        let (size, extent) = text.split_once(':').ok_or(FORM)?;
        let blocks = |text: &str| Some(parse_size(text).ok()? / BLOCK_SIZE as u64);
        let size = match size {
            "rest" => None,
            size => Some(blocks(size).ok_or(FORM)?),
        };
        let extent = blocks(extent).ok_or(FORM)?;
        let is_extent = extent.is_power_of_two() && (1..=64).contains(&extent);
        let extent_blocks = is_extent.then_some(extent as u32);
        let extent_blocks = extent_blocks.ok_or("an extent is 4K, 8K, ... or 256K")?;
        Ok(Self(SectionWish { blocks: size, extent_blocks: Some(extent_blocks) }))
    }
}

/// A cache that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MadeCache {
    /// Path of the device.
    pub device: String,
    /// UUID of the cache.
    pub uuid: String,
    /// Bytes in all segments.
    pub capacity: u64,
    /// Bytes of an extent, for each section.
    pub extents: Vec<u32>,
    /// Bytes of memory that the index of the cache takes in a mount, at most.
    pub index_memory: u64,
    /// Bytes that can be cached with this memory.
    pub cached_max: u64,
}

/// A device that was checked, and is held against other users.
pub struct CacheDevice {
    path: PathBuf,
    device: FileDevice,
    /// Options without the UUIDs.
    options: MakeOptions,
}

impl CacheDevice {
    /// Opens the device at `path` for the cache of a volume on `disk`. Writes nothing.
    ///
    /// # Errors
    ///
    /// [`MkfsError`] if the device is in use, holds other content without `force`, is the disk, or is too small for the sections.
    pub fn open(
        (path, disk): (&Path, &Path),
        force: bool,
        sections: &[SectionSize],
        policy: PolicyName,
    ) -> Result<Self, MkfsError> {
        let same = |path: &Path| path.canonicalize().ok();
        if same(path).is_some() && same(path) == same(disk) {
            return Err(MkfsError::CacheIsDisk(path.to_owned()));
        }
        refuse_in_use(path)?;
        let device = FileDevice::open(path, Access::ReadWrite).map_err(MkfsError::Open)?;
        let failed = |error| MkfsError::Device { device: path.to_owned(), error };
        let found = detect(&Ends::read_device(&device).map_err(failed)?);
        if !force && !found.is_empty() {
            return Err(MkfsError::Signatures { device: path.to_owned(), found });
        }
        let sections = sections.iter().map(|section| section.wish()).collect();
        let (volume_uuid, cache_uuid) = ([0; 16], [0; 16]);
        let options = MakeOptions { volume_uuid, cache_uuid, sections, policy };
        sfs_cache::plan(&device, &options)
            .map_err(|error| MkfsError::Cache { device: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), device, options })
    }

    /// Makes the cache `cache_uuid` of the volume `volume_uuid`.
    ///
    /// # Errors
    ///
    /// [`MkfsError::Cache`] if the device fails.
    pub fn make(
        self,
        (volume_uuid, cache_uuid): ([u8; 16], [u8; 16]),
    ) -> Result<MadeCache, MkfsError> {
        let options = MakeOptions { volume_uuid, cache_uuid, ..self.options };
        // A discard only helps the device.
        let _ = self.device.discard(0, self.device.geometry().block_count);
        let written = wipe_signatures(&self.device)
            .map_err(sfs_cache::CacheError::Device)
            .and_then(|()| sfs_cache::make(&self.device, &options));
        let header =
            written.map_err(|error| MkfsError::Cache { device: self.path.clone(), error })?;
        Ok(made(&self.path, &header))
    }
}

fn made(path: &Path, header: &CacheHeader) -> MadeCache {
    let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
    let segments = header.sections.iter().map(|section| u64::from(section.segment_count));
    let memory = IndexMemory::of(header);
    let extent = |blocks: u32| blocks * BLOCK_SIZE as u32;
    MadeCache {
        device: path.display().to_string(),
        uuid: Uuid::from_bytes(header.cache_uuid).to_string(),
        capacity: bytes(segments.sum::<u64>() * u64::from(header.segment_blocks)),
        index_memory: memory.bytes,
        cached_max: bytes(memory.cached_blocks_max(header)),
        extents: header.sections.iter().map(|section| extent(section.extent_blocks)).collect(),
    }
}

/// Opens the device of `--cache`, if there is one.
pub(crate) fn open(options: &MkfsOptions) -> Result<Option<CacheDevice>, MkfsError> {
    let Some(path) = &options.cache else { return Ok(None) };
    if options.data_layout != DataLayout::Log {
        return Err(MkfsError::CacheInPlace(options.device.clone()));
    }
    let paths = (path.as_path(), options.device.as_path());
    CacheDevice::open(paths, options.force, &options.sections, options.cache_policy).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_a_size_and_an_extent() {
        let wish = |text: &str| text.parse::<SectionSize>().map(SectionSize::wish).ok();
        let section = |blocks, extent| Some(SectionWish { blocks, extent_blocks: Some(extent) });
        assert_eq!(wish("8M:16K"), section(Some(2048), 4));
        assert_eq!(wish("rest:256K"), section(None, 64));
        for wrong in ["8M", "8M:", "8M:12K", "8M:512K", "8M:0", "all:16K", "8M:2K"] {
            assert_eq!(wish(wrong), None, "{wrong}");
        }
    }
}
