//! Object stores on this machine, for tests and benchmarks.
//!
//! [`ObjectServer`] starts a server on 127.0.0.1, kills it, and starts it again on the same port. A server that is not
//! installed is an error whose text tests print as `skipped: ...`. [`SimulatedStore`] is a store in the memory of the test,
//! with a latency and a bandwidth. [`CuttingProxy`] is between a program and a server, and cuts connections.
//!
//! A server and its data end with the value. No program of SFS depends on this crate.
#![forbid(unsafe_code)]

mod ceph;
mod containers;
mod http;
mod kind;
mod link;
mod multipart;
mod objects;
mod process;
mod proxy;
mod server;
mod simulated;

pub use kind::ServerKind;
pub use link::Link;
pub use proxy::CuttingProxy;
pub use server::{BUCKET, KEYS, ObjectServer};
pub use simulated::{SimulatedStore, Traffic};
