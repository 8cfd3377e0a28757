//! Pictures of a volume: a live view in the terminal ([`top`]), and a report as one HTML page ([`report_page`]).
//!
//! The pictures are made from the JSON that `sfs-ctl` prints, whose names docs/sfs-ctl.md states. The crate knows neither
//! the filesystem nor the daemon, so the daemon links nothing of it. Text from a volume may be forged: it reaches the
//! terminal without control characters, and the page escaped.
#![forbid(unsafe_code)]

mod escape;
#[cfg(test)]
mod fixture;
mod hotness;
mod html;
mod model;
mod numbers;
mod rates;
mod sentences;
mod terminal;

pub use html::report_page;
pub use terminal::{Look, TopError, TopOptions, VolumeSource, top};
