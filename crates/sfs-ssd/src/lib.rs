//! Models of flash devices, which count and time the internal operations that host requests cause.
//!
//! [`Ssd`] is the controller: it splits requests into pages, which a translation layer ([`ftl`]) places on
//! the array ([`Flash`]). [`RequestQueue`] schedules requests, [`SsdProfile`] describes the devices of the
//! papers, and [`SsdDevice`] is a block device over a model ([`ModelDevice`] takes other [`TimedModel`]s too). Times are virtual. The same requests give the
//! same counts and times on every machine, because only [`TimeMode::RealTime`] reads a clock and nothing is
//! random.
#![forbid(unsafe_code)]

mod clock;
mod counters;
mod device;
mod divisor;
mod flash;
pub mod ftl;
mod geometry;
mod model;
mod objects;
mod profiles;
mod queue;
mod request;
mod ssd;
pub mod theory;
mod timing;

pub use clock::{ModelClock, TimeMode};
pub use counters::SsdCounters;
pub use device::{ModelDevice, SsdDevice};
pub use flash::{Flash, Spare};
pub use geometry::FlashGeometry;
pub use model::TimedModel;
pub use objects::{ObjectAttributes, ObjectError, ObjectId, ObjectStore};
pub use profiles::{SsdProfile, profiles};
pub use queue::{Arrivals, RequestQueue, Scheduling};
pub use request::{Completion, HostRequest, RequestKind, Responses};
pub use ssd::{Cleaning, Ssd, SsdConfig};
pub use timing::Timing;
