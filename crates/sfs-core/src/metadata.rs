//! Metadata in memory: the tree, the usage table, the policies, and the changes that the next delta has to encode.
//!
//! [`MetadataStore`] owns the lock and loads nodes; [`Metadata`] is the state under the lock; [`Txn`] collects the
//! changes of one operation. A set of changes takes effect whole or not at all. Every change is kept until a delta
//! or a checkpoint has encoded it. A method of [`Metadata`] does not wait for the device: the method returns
//! [`MetadataError::NotCached`] instead.

mod access_times;
mod changes;
mod metadata_error;
mod owners;
mod reservations;
mod scan;
mod state;
mod store;
mod txn;

pub(crate) use metadata_error::MetadataError;
pub(crate) use owners::Owner;
pub(crate) use reservations::{overlapping, reservation_of, without};
pub(crate) use state::Metadata;
pub(crate) use store::{MetadataStore, NODE_READS_MAX};
pub(crate) use txn::{Txn, run_base};
