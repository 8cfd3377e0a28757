//! The protocol by which a volume lives in an object store: who may write, what is acknowledged, what may be deleted.
//!
//! The only thing asked of a store is that the first PUT of a name decides its content. `docs/decisions/0042-segments-as-objects.md`
//! has the protocol and its proof; `tests/interleavings.rs` runs this code in every order of its requests.
//!
//! * [`ObjectStore`] is the store, with the outcomes that a network has;
//! * [`Writer`] claims an epoch, seals those before, and appends;
//! * [`read_newest`] is a reader that follows a writer;
//! * [`EncryptedStore`] is a store that sees ciphertext alone;
//! * [`ObjectDevice`] is a volume with a local cache, as a block device;
//! * [`Snapshot`] is one state of a volume, as a block device that cannot be written, beside its writer;
//! * [`SocketStore`] is a store that another process reaches, through the frames of [`store_protocol`].
//!
//! The state in a manifest is bytes of the caller. Nothing has threads, and only [`SocketStore`] has a clock: nonces are arguments.
#![forbid(unsafe_code)]

mod decide;
mod encryption;
mod error;
mod frame;
mod gallop;
mod manifests;
mod memory_store;
pub mod mutant;
mod name;
mod presence;
mod reader;
mod socket_store;
mod store;
pub mod store_protocol;
mod takeover;
mod thinning;
mod volume;
mod wire;
mod writer;

pub use encryption::{
    EncryptedStore, EncryptionError, FileKey, KeyFileError, Random, system_random,
};
pub use error::ObjectError;
pub use frame::{Content, Manifest, Nonce};
pub use memory_store::MemoryStore;
pub use name::{Epoch, ObjectName};
pub use reader::{read_data, read_newest};
pub use socket_store::{
    Connect, Observer, Patience, SocketStore, StoreCounts, StoreProgram, Trouble, is_store_url,
    shown_url,
};
pub use store::{Found, Object, ObjectStore, Part, PutReply, Stopped};
pub use takeover::Recovered;
pub use thinning::Thinning;
pub use volume::{
    Durability, Failure, Limits, LocalState, ObjectDevice, OpenError, OpenRequest, Outage,
    PageCache, Shape, Snapshot, VolumeState, create, read_state, with_reads_that_fail,
};
pub use writer::{Claim, LogObject, Writer};
