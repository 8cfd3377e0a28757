//! Commit: builds one batch and writes it.
//!
//! A commit is a leaf step. Each commit returns [`Shortage`](super::Shortage) when too few segments are Clean, and calls
//! neither the checkpoint nor the cleaner. A file whose place in the tree is damaged loses its dirty data, so that
//! it cannot keep other files from becoming durable. A commit does not flush.

use std::sync::Arc;

use super::builder::{BatchBuilder, CommitBatch};
use super::commit_request::{CommitRequest, Progress};
use super::step_error::{BuildError, BuildErrorReason, Shortage, StepError};
use crate::files::{DirtyData, InodeTable};
use crate::format::{Corruption, CorruptionKind, DecodeError, Structure};
use crate::health::Health;
use crate::log::{LogState, LogWriter};
use crate::metadata::MetadataStore;
use crate::tree::NodeNotCached;
use crate::{Error, Result};

/// Builder and writer of one batch at a time.
pub(crate) struct Committer {
    builder: Arc<BatchBuilder>,
    resolver: Arc<Resolver>,
    metadata: Arc<MetadataStore>,
    log: Arc<LogWriter>,
    health: Arc<Health>,
}

/// Progress of a commit, and the segments that it has released.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    pub(crate) progress: Progress,
    pub(crate) released: Vec<u32>,
}

impl Committer {
    /// Returns a committer of the batches of `builder`.
    pub(crate) fn new(
        builder: Arc<BatchBuilder>,
        resolver: Arc<Resolver>,
        metadata: Arc<MetadataStore>,
        log: Arc<LogWriter>,
        health: Arc<Health>,
    ) -> Self {
        Self { builder, resolver, metadata, log, health }
    }

    /// Writes as much of `request` as fits into one batch. After a shortage nothing has been
    /// written.
    pub(crate) fn commit_once(
        &self,
        log: &mut LogState,
        request: &CommitRequest<'_>,
    ) -> std::result::Result<Committed, StepError> {
        // Writing may have ended while this thread waited for the log.
        self.health.check_running()?;
        let mut failed = None;
        let _pin = self.metadata.pin_nodes();
        let batch = loop {
            let built = self.builder.build(log, &mut self.metadata.write(), request);
            match built {
                Ok(batch) => break batch,
                Err(error) => self.resolver.resolve(error, &mut failed)?,
            }
        };
        let CommitBatch { chunks, in_place, progress, released } = batch;
        self.log.write_batch(log, &chunks, &in_place)?;
        Ok(Committed { progress, released })
    }
}

/// Resolves the errors that keep a batch from being built: loads nodes, and drops the dirty data of
/// damaged files.
pub(crate) struct Resolver {
    metadata: Arc<MetadataStore>,
    inodes: Arc<InodeTable>,
    dirty: Arc<DirtyData>,
    health: Arc<Health>,
}

impl Resolver {
    /// Returns a resolver for the files in `inodes` and the tree in `metadata`.
    pub(crate) fn new(
        metadata: Arc<MetadataStore>,
        inodes: Arc<InodeTable>,
        dirty: Arc<DirtyData>,
        health: Arc<Health>,
    ) -> Self {
        Self { metadata, inodes, dirty, health }
    }

    /// Resolves `error`, after which building may be tried again; returns the error if that is
    /// impossible. `failed` is the node that failed to verify in the attempt before.
    pub(super) fn resolve(
        &self,
        error: BuildError,
        failed: &mut Option<NodeNotCached>,
    ) -> std::result::Result<(), StepError> {
        let damage = match error.reason {
            BuildErrorReason::Shortage(Shortage) => return Err(Shortage.into()),
            BuildErrorReason::Failed(error) => damage_of(self.health.counted(error))?,
            BuildErrorReason::NotCached(node) => match self.metadata.load(&node, failed) {
                Ok(()) => return Ok(()),
                Err(Error::Device(error)) => self.damage_of_unread(&node, Error::Device(error))?,
                Err(error) => damage_of(error)?,
            },
        };
        let Some(ino) = error.ino else { return Err(Error::from(damage).into()) };
        *failed = None;
        self.dirty.lose_file(&self.inodes.get(ino), damage);
        Ok(())
    }

    /// Returns the damage that a node counts as after too many failed reads; before that, returns `error`.
    fn damage_of_unread(&self, node: &NodeNotCached, error: Error) -> Result<DecodeError> {
        let at = node.pointer.address;
        if !self.metadata.gives_up_reading(at) {
            return Err(error);
        }
        let damage = Corruption::in_block(Structure::Node, at, CorruptionKind::Unreadable);
        // What a late device has not read may be whole: only the data that was to be written is lost.
        if !matches!(&error, Error::Device(error) if error.is_late()) {
            self.health.note_corruption(&damage);
        }
        Ok(damage.into())
    }
}

/// Returns the damage in `error`, or `error` if it is no damage.
fn damage_of(error: Error) -> Result<DecodeError> {
    match error {
        Error::Corrupt(damage) => Ok(damage.into()),
        Error::Incompatible(incompatibility) => Ok(incompatibility.into()),
        error => Err(error),
    }
}
