//! `sfs-ctl top`: a live view of a mounted volume in the terminal.
//!
//! [`top`] samples a [`VolumeSource`] at an interval, and draws a frame of the last [`Sample`]s. `frame` divides the screen,
//! one file draws each part. Nothing depends on colour: states and utilization have characters of their own, and groups
//! have digits ([`Look`]). `screen` prepares the terminal, and restores it in every case.

mod canvas;
mod cleanings;
mod controls;
mod frame;
mod head;
mod hotness;
mod look;
mod map;
mod operations;
mod picture;
mod screen;
#[cfg(test)]
mod tests;

pub use look::Look;
pub use screen::{TopError, TopOptions, VolumeSource, top};
