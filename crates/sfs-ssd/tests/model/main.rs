//! Tests of the device models through their public interface.
//!
//! The models are compared with theory, with sequences worked out by hand, and with random histories.

mod controller;
mod determinism;
mod fixture;
mod hybrid;
mod integrity;
mod objects;
mod profiles;
mod theory;
