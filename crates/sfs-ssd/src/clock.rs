//! The clock of one or several models.
//!
//! In virtual time a request arrives when the request before it, to any of the devices with this clock, has
//! ended; in real time it arrives at the real time of the call.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

/// Relation of the model's time to real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeMode {
    /// Each request arrives, in virtual time, when the request before has ended. Calls do not wait.
    Virtual,
    /// A request arrives at the real time of the call, and the call returns when the request ends in the
    /// model.
    RealTime,
}

/// Clock of models. Clones are the same clock: the devices of one experiment share it.
#[derive(Clone)]
pub struct ModelClock(Arc<Mutex<ClockState>>);

struct ClockState {
    now_ns: u64,
    /// The real time, and the model's time, at the moment of the change to real time; `None` in virtual time.
    real: Option<(Instant, u64)>,
}

impl ModelClock {
    /// Returns a clock that shows zero.
    pub fn new(time_mode: TimeMode) -> ModelClock {
        let real = (time_mode == TimeMode::RealTime).then(|| (Instant::now(), 0));
        ModelClock(Arc::new(Mutex::new(ClockState { now_ns: 0, real })))
    }

    /// Returns the relation to real time.
    pub fn time_mode(&self) -> TimeMode {
        match self.0.lock().real {
            Some(_) => TimeMode::RealTime,
            None => TimeMode::Virtual,
        }
    }

    /// Changes the relation to real time. The clock first advances to `idle_ns`.
    pub(crate) fn set_time_mode(&self, time_mode: TimeMode, idle_ns: u64) {
        let mut clock = self.0.lock();
        match (time_mode, clock.real) {
            (TimeMode::RealTime, Some(_)) => (),
            (TimeMode::RealTime, None) => {
                clock.now_ns = clock.now_ns.max(idle_ns);
                clock.real = Some((Instant::now(), clock.now_ns));
            }
            (TimeMode::Virtual, _) => {
                clock.now_ns = clock.now_ns.max(idle_ns);
                clock.real = None;
            }
        }
    }

    /// Returns the time after the last request, in nanoseconds since the clock was made.
    pub fn now_ns(&self) -> u64 {
        self.0.lock().now_ns
    }

    /// Returns the arrival time of a request now, and `true` in real time.
    pub(crate) fn arrival(&self) -> (u64, bool) {
        let clock = self.0.lock();
        match clock.real {
            Some((began, began_ns)) => (began_ns + began.elapsed().as_nanos() as u64, true),
            None => (clock.now_ns, false),
        }
    }

    /// Notes that a request has ended.
    pub(crate) fn advance(&self, ended_ns: u64) {
        let mut clock = self.0.lock();
        clock.now_ns = clock.now_ns.max(ended_ns);
    }
}
