//! Check of the newest state of a volume in an object store, beside its writer.

use std::path::Path;

use sfs_mkfs::output;

use crate::check::quick::is_unmounted;
use crate::check::volume::{CheckOptions, check};
use crate::cli::arguments::{CheckArguments, RunMode};
use crate::cli::interrupt::InterruptFlag;
use crate::cli::json::outcome_to_json;
use crate::cli::object_store::{NewestState, StoreError};
use crate::cli::outcome::{FAILED, exit_code, print, print_unmounted};
use crate::cli::progress_bar::with_bar;
use crate::cli::text::outcome_to_text;
use crate::error::FsckError;
use crate::repair::run::RepairOutcome;

/// Checks the newest state in the store at `url`, shown as `shown`, and again if it has become old meanwhile.
pub(crate) fn check_newest(
    arguments: &CheckArguments,
    mode: RunMode,
    (url, shown): (&Path, &Path),
    interrupt: &InterruptFlag,
) -> Result<u8, FsckError> {
    let failed = |error: StoreError| {
        output::complain(format_args!("sfs-fsck: {}: {error}", shown.display()));
        Ok(FAILED)
    };
    let mut newest = match NewestState::open(url, arguments.key_file.as_deref()) {
        Ok(newest) => newest,
        Err(error) => return failed(error),
    };
    loop {
        if let Some(host) = newest.user() {
            output::complain(format_args!(
                "sfs-fsck: {}: {host} has not released the volume: its newest state in the store is checked",
                shown.display()
            ));
        }
        let checked = check_state(arguments, mode, &newest, interrupt);
        match newest.after_check() {
            Ok(None) => {
                return checked.map(|outcome| match outcome {
                    Some(outcome) => report(arguments, mode, shown, &outcome),
                    None => print_unmounted(arguments, shown),
                });
            }
            Ok(Some(newer)) => newest = newer,
            Err(error) => return failed(error),
        }
    }
}

/// Prints what was found, and how it is repaired. Returns the exit code.
fn report(arguments: &CheckArguments, mode: RunMode, shown: &Path, outcome: &RepairOutcome) -> u8 {
    let printed = print(&match arguments.json {
        true => format!("{}\n", outcome_to_json(outcome)),
        false => outcome_to_text(shown, outcome, arguments.verbose),
    });
    if mode != RunMode::Check && outcome.before.errors() > 0 {
        output::complain(format_args!(
            "sfs-fsck: {}: run sfs-fsck -y --cache FILE to repair",
            shown.display()
        ));
    }
    printed | exit_code(outcome)
}

/// Checks a state. Returns what was found, or `None` if the volume was unmounted, and a short check is enough.
fn check_state(
    arguments: &CheckArguments,
    mode: RunMode,
    newest: &NewestState,
    interrupt: &InterruptFlag,
) -> Result<Option<RepairOutcome>, FsckError> {
    let device = newest.device();
    let is_full = arguments.force || arguments.data;
    if mode == RunMode::Preen && !is_full && is_unmounted(device)? {
        return Ok(None);
    }
    let options = CheckOptions { data: arguments.data };
    let before = with_bar(interrupt, |listener| check(device, &options, listener))?;
    Ok(Some(RepairOutcome { before, ..RepairOutcome::default() }))
}
