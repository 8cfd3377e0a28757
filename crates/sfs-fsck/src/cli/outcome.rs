//! The end of a run: its report, and its exit code.
//!
//! Exit codes are those of fsck(8), added up: 0 clean, 1 repaired, 4 errors left, 8 no check was
//! possible or its result could not be printed, 16 wrong usage, 32 cancelled.

use std::path::Path;

use serde_json::json;
use sfs_mkfs::output;

use crate::cli::arguments::CheckArguments;
use crate::repair::run::RepairOutcome;

pub(crate) const CLEAN: u8 = 0;
pub(crate) const REPAIRED: u8 = 1;
pub(crate) const DAMAGED: u8 = 4;
pub(crate) const FAILED: u8 = 8;
pub(crate) const USAGE: u8 = 16;
pub(crate) const CANCELLED: u8 = 32;

/// Exit codes that are added up.
pub const EXIT_STATUSES: [u8; 6] = [CLEAN, REPAIRED, DAMAGED, FAILED, USAGE, CANCELLED];

/// Prints that an unmounted volume was not checked in full.
pub(crate) fn print_unmounted(arguments: &CheckArguments, path: &Path) -> u8 {
    match arguments.json {
        true => print(&format!("{}\n", json!({ "clean": true, "unmounted": true }))),
        false => print(&format!(
            "{}: clean: the volume was unmounted; -f checks it in full\n",
            path.display()
        )),
    }
}

/// Prints a report. If standard output refuses the report, it goes to standard error, because no
/// later run can find the losses of a repair again.
pub(crate) fn print(report: &str) -> u8 {
    match output::print(report) {
        Ok(()) => CLEAN,
        Err(error) => {
            output::complain(format_args!("{report}sfs-fsck: {error}"));
            FAILED
        }
    }
}

/// Returns the exit code of a check or repair.
pub(crate) fn exit_code(outcome: &RepairOutcome) -> u8 {
    let left = if outcome.errors_left() > 0 { DAMAGED } else { CLEAN };
    left | if outcome.after.is_some() { REPAIRED } else { CLEAN }
}
