//! Budgets of a mount, fitted to the available memory.
//!
//! The default budgets take at most a quarter of the memory. Budgets that the user gave are kept if
//! they fit beside the memory that the daemon always needs, and are shrunk in proportion otherwise.

use sfs_core::request::VolumeOptions;
use sfs_system::Human;
use sfs_system::memory_limit::MemoryLimit;

use crate::exit_error::ExitError;

const MIB: u64 = 1 << 20;

/// Memory that the daemon needs beside its budgets: threads, requests, batches in flight, and the table of segments
/// of a small volume.
const BESIDE_BUDGETS_BYTES: u64 = 32 * MIB;

/// Minimum memory with which a volume is mounted.
const LIMIT_MIN_BYTES: u64 = 24 * MIB;

/// Minimum budget of either kind.
const BUDGET_MIN_BYTES: u64 = MIB;

/// Divisor of the memory; the default budgets take at most the quotient.
const DEFAULT_SHARE: u64 = 4;

/// Shrinks the budgets of `options` so that they fit into `limit`. Returns a line for the user if
/// budgets that the options gave do not fit.
///
/// # Errors
///
/// [`ExitError`] if the limit is too low for any volume.
pub(crate) fn fit(
    options: &mut VolumeOptions,
    limit: MemoryLimit,
) -> Result<Option<String>, ExitError> {
    let MemoryLimit { bytes, kind } = limit;
    if bytes < LIMIT_MIN_BYTES {
        return Err(ExitError::system(format_args!(
            "the {kind} is {}; a mount needs at least {}",
            Human(bytes),
            Human(LIMIT_MIN_BYTES)
        )));
    }
    let defaults = VolumeOptions::default();
    let given = (options.write_buffer, options.cache);
    let share = bytes / DEFAULT_SHARE;
    if given == (defaults.write_buffer, defaults.cache) {
        shrink(options, share);
        return Ok(None);
    }
    shrink(options, share.max(bytes - BESIDE_BUDGETS_BYTES.min(bytes)));
    let fitted = (options.write_buffer, options.cache);
    let line = || {
        format!(
            "the {kind} is {}, which is too low for write_buffer={} and cache={}; using {} and {}",
            Human(bytes),
            Human(given.0 as u64),
            Human(given.1 as u64),
            Human(fitted.0 as u64),
            Human(fitted.1 as u64)
        )
    };
    Ok((fitted != given).then(line))
}

/// Returns the most memory for the index of an SSD cache in bytes: half as much as the default budgets take at most.
pub(crate) fn cache_index_bytes(limit: MemoryLimit) -> u64 {
    limit.bytes / DEFAULT_SHARE / 2
}

/// Shrinks both budgets in proportion until their sum is at most `most_bytes`.
fn shrink(options: &mut VolumeOptions, most_bytes: u64) {
    let sum = options.write_buffer as u64 + options.cache as u64;
    if sum <= most_bytes {
        return;
    }
    let part = |budget: usize| {
        let bytes = u128::from(most_bytes) * budget as u128 / u128::from(sum);
        // Whole MiB read well in messages.
        (bytes as u64 / MIB * MIB).max(BUDGET_MIN_BYTES) as usize
    };
    (options.write_buffer, options.cache) = (part(options.write_buffer), part(options.cache));
}

#[cfg(test)]
mod tests {
    use sfs_system::memory_limit::LimitKind;

    use super::*;

    fn fitted(write_buffer: u64, cache: u64, limit: u64) -> (u64, u64, Option<String>) {
        let mut options = VolumeOptions {
            write_buffer: (write_buffer * MIB) as usize,
            cache: (cache * MIB) as usize,
            ..VolumeOptions::default()
        };
        let limit = MemoryLimit { bytes: limit * MIB, kind: LimitKind::ControlGroup };
        let line = fit(&mut options, limit).expect("the memory is enough");
        (options.write_buffer as u64 / MIB, options.cache as u64 / MIB, line)
    }

    #[test]
    fn default_budgets_take_a_quarter_at_most() {
        assert_eq!(fitted(64, 128, 24 << 10), (64, 128, None));
        assert_eq!(fitted(64, 128, 768), (64, 128, None));
        assert_eq!(fitted(64, 128, 96), (8, 16, None));
        assert_eq!(fitted(64, 128, 48), (4, 8, None));
        assert_eq!(fitted(64, 128, 24), (2, 4, None));
    }

    #[test]
    fn given_budgets_are_kept_if_they_fit_and_shrunk_with_a_line_otherwise() {
        assert_eq!(fitted(8, 8, 48), (8, 8, None));
        assert_eq!(fitted(64, 256, 512), (64, 256, None));
        let (write_buffer, cache, line) = fitted(256, 256, 64);
        assert_eq!((write_buffer, cache), (16, 16));
        let line = line.expect("a line tells the budget");
        assert!(line.contains("64") && line.contains("control group"), "{line}");
    }

    #[test]
    fn a_mount_that_cannot_work_is_refused() {
        let limit = MemoryLimit { bytes: 20 * MIB, kind: LimitKind::AddressSpace };
        let refused = fit(&mut VolumeOptions::default(), limit).expect_err("the limit is too low");
        assert!(refused.to_string().contains("ulimit -v"), "{refused}");
    }
}
