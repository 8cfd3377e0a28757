//! Components of an open volume below space control, assembled from the bottom to the top.

use std::sync::Arc;

use sfs_device::Device;

use crate::counters::AtomicCounters;
use crate::files::{DirtyData, InodeTable, Orphans};
use crate::format::{DataLayout, Layout};
use crate::health::{Health, OpenSuperblock, SuperblockCopies, SuperblockStore};
use crate::io::VolumeDevice;
use crate::log::{ChunkReader, LogState, LogWriter};
use crate::metadata::{Metadata, MetadataStore};
use crate::policy::{self, GroupingPolicy, SingleGroup, VictimPolicy};
use crate::request::VolumeOptions;
use crate::wear::WearRecorder;
use crate::writeback::data_layout::{LayoutBehaviour, behaviour_of};
use crate::writeback::{BatchBuilder, Checkpointer, CheckpointerParts, Resolver};
use crate::{Error, Result};

/// Components of an open volume below space control.
#[derive(Clone)]
pub(crate) struct Components {
    pub(crate) superblock: Arc<OpenSuperblock>,
    pub(crate) options: VolumeOptions,
    pub(crate) counters: Arc<AtomicCounters>,
    pub(crate) wear: Arc<WearRecorder>,
    pub(crate) health: Arc<Health>,
    pub(crate) superblocks: Arc<SuperblockStore>,
    pub(crate) io: Arc<VolumeDevice>,
    pub(crate) chunks: ChunkReader,
    pub(crate) metadata: Arc<MetadataStore>,
    pub(crate) inodes: Arc<InodeTable>,
    pub(crate) dirty: Arc<DirtyData>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) log: Arc<LogWriter>,
    pub(crate) behaviour: Arc<dyn LayoutBehaviour>,
    pub(crate) builder: Arc<BatchBuilder>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) checkpointer: Arc<Checkpointer>,
    /// Segments that the checkpoint of this mount has released, for the discards.
    pub(crate) released: Vec<u32>,
}

impl Components {
    /// Assembles the components of the volume on `device`, from the state of its log, the number of bytes that
    /// went to the device so far, and its metadata.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        copies: SuperblockCopies,
        options: VolumeOptions,
        (log, device_bytes_before): (LogState, u64),
        mut metadata: Metadata,
    ) -> Self {
        let superblock = Arc::new(OpenSuperblock::new(copies.current().clone()));
        metadata.tolerance = superblock.tolerance();
        let next_sequence = log.next_sequence;
        let counters = Arc::new(AtomicCounters::default());
        let wear = Arc::new(WearRecorder::new(
            counters.clone(),
            superblock.opened(),
            &log.extensions,
            device_bytes_before,
        ));
        let health = Arc::new(Health::new(&log.extensions, superblock.opened().failure, &options));
        let superblocks = Arc::new(SuperblockStore::new(device.clone(), health.clone(), copies));
        let io = Arc::new(VolumeDevice::new(device, health.clone(), counters.clone()));
        let chunks = ChunkReader::new(io.clone(), superblock.clone());
        let metadata = Arc::new(MetadataStore::new(
            metadata,
            io.clone(),
            superblock.clone(),
            health.clone(),
            counters.clone(),
            options.cache,
            next_sequence,
        ));
        let inodes = Arc::new(InodeTable::default());
        let write_buffer = if options.read_only { 0 } else { options.write_buffer };
        let dirty = Arc::new(DirtyData::new(write_buffer));
        let orphans = Arc::new(Orphans::new(metadata.clone(), inodes.clone(), dirty.clone()));
        let log = Arc::new(LogWriter::new(log, io.clone(), health.clone(), counters.clone()));
        let behaviour: Arc<dyn LayoutBehaviour> = behaviour_of(superblock.data_layout()).into();
        let builder = Arc::new(BatchBuilder::new(
            (superblock.clone(), &options),
            behaviour.clone(),
            metadata.clone(),
            dirty.clone(),
            io.clone(),
            counters.clone(),
        ));
        let resolver = Arc::new(Resolver::new(
            metadata.clone(),
            inodes.clone(),
            dirty.clone(),
            health.clone(),
        ));
        let checkpointer = Arc::new(Checkpointer::new(CheckpointerParts {
            superblock: superblock.clone(),
            builder: builder.clone(),
            resolver: resolver.clone(),
            metadata: metadata.clone(),
            dirty: dirty.clone(),
            log: log.clone(),
            io: io.clone(),
            health: health.clone(),
            counters: counters.clone(),
            wear: wear.clone(),
        }));
        Self {
            superblock,
            options,
            counters,
            wear,
            health,
            superblocks,
            io,
            chunks,
            metadata,
            inodes,
            dirty,
            orphans,
            log,
            behaviour,
            builder,
            resolver,
            checkpointer,
            released: Vec::new(),
        }
    }
}

/// Policies of a mount.
pub(crate) type Policies = (Box<dyn GroupingPolicy>, Box<dyn VictimPolicy>);

/// Returns the policies that `options` name, for a volume with `layout` and `data_layout`.
pub(crate) fn policies(
    options: &VolumeOptions,
    data_layout: DataLayout,
    layout: &Layout,
) -> Result<Policies> {
    let Layout { segment_count, segment_blocks, .. } = *layout;
    let blocks = u64::from(segment_count) * u64::from(segment_blocks);
    // Data outside the log needs no groups in it.
    let name = match data_layout {
        DataLayout::Log => &*options.grouping,
        _ => SingleGroup.name(),
    };
    let groups = options.groups;
    let grouping = policy::grouping_policy(name, groups, segment_count, segment_blocks, blocks);
    let victims = options.victim.as_deref().unwrap_or_else(|| policy::default_victim_policy(name));
    let victims = policy::victim_policy(victims, segment_count, segment_blocks, blocks);
    grouping.zip(victims).ok_or(Error::Invalid)
}
