//! Models of flash devices: what happens inside when the host writes, counted and timed exactly.
//!
//! Owns: the array ([`Flash`]), the translation layers ([`ftl`]), the controller ([`Ssd`],
//! [`Queue`]), the devices of the papers ([`Profile`]), and a block device over a model
//! ([`SsdDevice`]).
//! Promises: the same requests give the same counts and the same virtual times on every machine.
//! Never: reads a clock, but for [`Pace::RealTime`]; draws random numbers.
#![forbid(unsafe_code)]

mod counters;
mod device;
mod divisor;
mod flash;
pub mod ftl;
mod geometry;
mod objects;
mod profiles;
mod queue;
mod request;
mod ssd;
pub mod theory;
mod timing;

pub use counters::Counters;
pub use device::{Pace, SsdDevice};
pub use flash::{Flash, Spare};
pub use geometry::Geometry;
pub use objects::{Attributes, ObjectError, ObjectId, ObjectStore};
pub use profiles::{Profile, profiles};
pub use queue::{Arrivals, Queue, Scheduling};
pub use request::{Completion, Request, RequestKind, Responses};
pub use ssd::{Cleaning, Config, Ssd};
pub use timing::Timing;
