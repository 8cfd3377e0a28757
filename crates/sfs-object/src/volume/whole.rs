//! Uploading whole regions, each as a data object.

use std::cell::Cell;

use sfs_device::{BLOCK_SIZE, Block};

use super::log_record::{LogContent, Record};
use super::upload::Uploader;
use super::{Failure, ObjectDevice};
use crate::name::ObjectName;
use crate::store::ObjectStore;

/// The content of a region, whose memory is that of the next one afterwards.
struct RegionBytes<'a> {
    blocks: Box<[Block]>,
    memory: &'a Cell<Box<[Block]>>,
}

impl AsRef<[u8]> for RegionBytes<'_> {
    fn as_ref(&self) -> &[u8] {
        Block::bytes_of(&self.blocks)
    }
}

impl Drop for RegionBytes<'_> {
    fn drop(&mut self) {
        self.memory.set(std::mem::take(&mut self.blocks));
    }
}

impl<S: ObjectStore + Clone> ObjectDevice<S> {
    /// Puts whole regions into data objects, each as soon as there is room for it among those that are under way.
    pub(super) fn upload_whole(
        &self,
        uploader: &mut Uploader<S>,
        regions: &[u64],
        content: &mut LogContent,
    ) -> Result<(), Failure> {
        let (mut filled, mut failure) = (Vec::new(), None);
        let memory = Cell::default();
        let snapshot = |region: &u64| {
            let blocks = self.snapshot(*region, memory.take())?;
            Ok::<_, Failure>(RegionBytes { blocks, memory: &memory })
        };
        let mut contents = regions.iter().filter_map(|region| {
            // The cache is not asked any more.
            if failure.is_some() {
                return None;
            }
            let read = snapshot(region).map_err(|error| failure = Some(error));
            let bytes = read.ok()?;
            if bytes.blocks.iter().all(|block| *block == Block::ZERO) {
                content.records.push(Record::Zero { region: *region });
                return None;
            }
            filled.push(*region);
            Some(bytes)
        });
        let bytes_at_once = self.limits.upload_blocks as usize * BLOCK_SIZE;
        let names = uploader.writer.put_data_each(&mut contents, bytes_at_once)?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        for (region, name) in filled.into_iter().zip(names) {
            if let ObjectName::Data(epoch, number) = name {
                content.records.push(Record::Whole { region, data: (epoch, number) });
            }
        }
        Ok(())
    }
}
