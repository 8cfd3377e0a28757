//! Processor time of other processes.

use std::fs;
use std::time::Duration;

/// Time of a tick in files of /proc: USER_HZ is 100 on all architectures that SFS runs on.
const TICK: Duration = Duration::from_millis(10);

/// Returns the time of a process so far.
pub(super) fn of(pid: u32) -> Duration {
    ticks(&format!("/proc/{pid}/stat"), 11)
}

/// Returns the time of all processes that this one has started and waited for, with those that they have waited for.
pub(super) fn of_ended() -> Duration {
    ticks("/proc/self/stat", 13)
}

/// Returns the sum of two fields, of which the first is the one at `at` after the name.
fn ticks(path: &str, at: usize) -> Duration {
    let stat = fs::read_to_string(path).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let ticks = fields.skip(at).take(2).filter_map(|field| field.parse::<u32>().ok());
    TICK * ticks.sum::<u32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Cmd;

    #[test]
    fn the_time_of_a_process_is_counted_when_it_has_ended() {
        let before = of_ended();
        let text = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        Cmd::new("sh").args(["-c", text]).read().expect("a shell");
        assert!(of_ended() > before);
        assert_eq!(of(u32::MAX), Duration::ZERO);
    }
}
