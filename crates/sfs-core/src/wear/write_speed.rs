//! Judgement of the speed of writing: slow is what takes four times as long as when the device was first measured.

use crate::format::WriteSpeed;

/// Number of measurements whose mean is the speed to compare with.
const SAMPLES: u16 = 16;

/// Factor between a slow measurement and the first ones.
const SLOW_FACTOR: u32 = 4;

/// Microseconds for a MiB up to which no measurement is slow: 100 MiB/s. Above, a device is as fast as the
/// machine lets it be.
const SLOW_MICROS_MIN: u32 = 10_000;

/// Number of slow measurements in a row that count as one event.
const SLOW_IN_A_ROW: u16 = 8;

impl WriteSpeed {
    /// Adds a measurement in microseconds for a MiB; returns whether it completes a row of slow ones.
    pub(super) fn note(&mut self, micros: u32) -> bool {
        if self.samples < SAMPLES {
            let sum = u64::from(self.first_micros) * u64::from(self.samples) + u64::from(micros);
            self.samples += 1;
            self.first_micros = (sum / u64::from(self.samples)) as u32;
            return false;
        }
        let limit = self.first_micros.saturating_mul(SLOW_FACTOR).max(SLOW_MICROS_MIN);
        self.slow = if micros > limit { self.slow.saturating_add(1) } else { 0 };
        let is_event = self.slow >= SLOW_IN_A_ROW;
        if is_event {
            // A volume may have been copied to a slower device: what is slow from now on is compared with this speed.
            *self = Self::default();
        }
        is_event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_has_become_slow_is_noticed_and_a_hiccup_is_not() {
        let mut speed = WriteSpeed::default();
        let mut note = |micros, times: usize| (0..times).filter(|_| speed.note(micros)).count();
        assert_eq!(note(40_000, 16), 0, "the first measurements");
        assert_eq!(note(160_000, 100), 0, "four times as long is not slow");
        assert_eq!(note(161_000, 7) + note(50_000, 1) + note(161_000, 7), 0, "hiccups");
        assert_eq!(note(161_000, 1), 1);
        assert_eq!(note(161_000, 100), 0, "told once");
        assert_eq!(note(700_000, 8), 1, "slower still");
    }

    #[test]
    fn a_forged_row_of_slow_measurements_ends() {
        let mut speed = WriteSpeed { samples: SAMPLES, slow: u16::MAX, ..WriteSpeed::default() };
        assert!(speed.note(u32::MAX) && speed == WriteSpeed::default());
    }

    #[test]
    fn a_fast_device_is_never_slow() {
        let mut speed = WriteSpeed::default();
        assert!((0..100).all(|no| !speed.note(if no < 16 { 500 } else { 9_000 })));
    }
}
