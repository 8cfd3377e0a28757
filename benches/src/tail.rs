//! Latency of single requests: a foreground load whose every request is timed, alone or beside a
//! background program.
//!
//! A [`Playground`] is a directory of the mounted filesystem under test, with the files that
//! [`prepare`] makes. The foreground loads are in [`foreground`], the programs beside them in
//! [`background`]. All random choices follow from a seed.

pub mod background;
pub mod foreground;
mod latency;
mod playground;
mod prepare;

pub use latency::{CallLatency, Latencies, Outcome};
pub use playground::Playground;
pub use prepare::{Amounts, prepare};
