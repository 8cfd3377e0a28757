//! A model of a disk, as a block device needs it.

use sfs_device::Geometry;

use crate::request::{Completion, HostRequest};

/// Model that times the requests of a host.
pub trait TimedModel {
    /// Returns the geometry that the device reports.
    fn geometry(&self) -> Geometry;

    /// Serves a request from `at_ns` on, which must not be before its arrival.
    fn serve(&mut self, request: &HostRequest, at_ns: u64) -> Completion;

    /// Returns the time from which the model has nothing to do, in nanoseconds.
    fn idle_ns(&self) -> u64;

    /// Does the work in the background that is due after a request.
    fn rest(&mut self, _at_ns: u64) {}

    /// Returns the time from which the model can begin another request. `None` if requests begin when they
    /// arrive, because the model works on many at a time.
    fn free_ns(&self) -> Option<u64> {
        None
    }

    /// Returns the time that a request needs before its transfer begins. Of the requests that wait for the
    /// model, the one with the shortest time is next.
    fn positioning_ns(&self, _request: &HostRequest, _at_ns: u64) -> u64 {
        0
    }
}
