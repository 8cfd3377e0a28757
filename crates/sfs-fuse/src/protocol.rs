//! Messages of the protocol: their bytes, decoding requests and encoding replies.
//!
//! [`abi`] has the kernel's structures. Requests go from bytes through [`argument_reader`] and [`decode`] to a
//! [`fuse_request`]; replies go from [`reply`] and [`node_reply`] through [`message`] to bytes. No module here does
//! input or output.

pub(crate) mod abi;
pub(crate) mod argument_reader;
mod decode;
pub(crate) mod directory_listing;
pub(crate) mod errno;
pub(crate) mod fuse_operation;
pub(crate) mod fuse_request;
pub(crate) mod init_features;
pub(crate) mod message;
pub(crate) mod node_reply;
pub(crate) mod reply;
pub(crate) mod timestamps;
