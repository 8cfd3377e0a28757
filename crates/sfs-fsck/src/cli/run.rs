//! Runs of the program. Without `-p`, `-y` or the answer yes, nothing is written.

use std::io::{IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};
use sfs_core::format::Timestamp;
use sfs_device::{Access, Device, FileDevice, OpenErrorKind};
use sfs_mkfs::output;

use crate::check::quick::is_unmounted;
use crate::check::volume::{CheckOptions, check};
use crate::cli::arguments::{CheckArguments, DumpArguments, FsckArguments, RunMode, Subcommand};
use crate::cli::cache::{CacheOutcome, check_cache};
use crate::cli::dump::dump;
use crate::cli::dump_text::dump_to_text;
use crate::cli::interrupt::InterruptFlag;
use crate::cli::json::outcome_to_json;
use crate::cli::object_store::{NewestState, StoreError, StoreInUse};
use crate::cli::outcome::{
    CANCELLED, CLEAN, DAMAGED, FAILED, REPAIRED, USAGE, exit_code, print, print_unmounted,
};
use crate::cli::progress_bar::with_bar;
use crate::cli::store_check::check_newest;
use crate::cli::text::{outcome_to_text, repair_to_text};
use crate::error::FsckError;
use crate::repair::options::RepairOptions;
use crate::repair::run::{RepairOutcome, repair};

/// Returns the command line of `sfs-fsck`, from which its manual page is made.
pub fn command() -> clap::Command {
    FsckArguments::command()
}

/// Runs the program `sfs-fsck` with the arguments of the process.
pub fn run_program() -> ExitCode {
    let arguments = match FsckArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return print_usage(&error),
    };
    ExitCode::from(run(&arguments))
}

fn print_usage(error: &clap::Error) -> ExitCode {
    // A closed terminal is no reason for another exit code.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(USAGE),
    }
}

fn run(arguments: &FsckArguments) -> u8 {
    let keys = match &arguments.subcommand {
        Some(Subcommand::Dump(dump)) => (&dump.key_file, Some(&dump.device)),
        None => (&arguments.check.key_file, arguments.check.device.as_ref()),
    };
    if let (Some(_), Some(device)) = keys
        && !sfs_object::is_store_url(device.as_os_str())
    {
        let shown = device.display();
        output::complain(format_args!(
            "sfs-fsck: {shown}: --key-file is for a volume in an object store"
        ));
        return USAGE;
    }
    match (&arguments.subcommand, &arguments.check.device) {
        (Some(Subcommand::Dump(arguments)), _) => run_dump(arguments),
        (None, Some(path)) => run_check(&arguments.check, path),
        (None, None) => USAGE,
    }
}

fn run_dump(arguments: &DumpArguments) -> u8 {
    if sfs_object::is_store_url(arguments.device.as_os_str()) {
        return match NewestState::open(&arguments.device, arguments.key_file.as_deref()) {
            Ok(newest) => print_dump(arguments, newest.device()),
            Err(error) => {
                let shown = shown(&arguments.device);
                output::complain(format_args!("sfs-fsck: {}: {error}", shown.display()));
                FAILED
            }
        };
    }
    let device = match FileDevice::open_shared(&arguments.device, Access::ReadOnly) {
        Ok(device) => device,
        Err(error) => {
            output::complain(format_args!("sfs-fsck: {error}"));
            return FAILED;
        }
    };
    print_dump(arguments, &device)
}

fn print_dump(arguments: &DumpArguments, device: &dyn Device) -> u8 {
    match dump(device, &arguments.target.subject()) {
        Ok(value) if arguments.json => print(&format!("{value}\n")),
        Ok(value) => print(&dump_to_text(&value)),
        Err(error) => {
            output::complain(format_args!("sfs-fsck: {}: {error}", arguments.device.display()));
            FAILED
        }
    }
}

fn run_check(arguments: &CheckArguments, path: &Path) -> u8 {
    let is_terminal = stdin().is_terminal() && stdout().is_terminal();
    let Some(mode) = arguments.mode().or(is_terminal.then_some(RunMode::Ask)) else {
        output::complain(format_args!(
            "sfs-fsck: not on a terminal: give -n to check, -p or -y to repair"
        ));
        return FAILED;
    };
    let is_in_store = sfs_object::is_store_url(path.as_os_str());
    let device = match is_in_store {
        true => None,
        false => match open(path, mode) {
            Some(device) => Some(device),
            None => return FAILED,
        },
    };
    let interrupt = match InterruptFlag::install() {
        Ok(interrupt) => interrupt,
        Err(error) => {
            output::complain(format_args!("sfs-fsck: cannot install signal handlers: {error}"));
            return FAILED;
        }
    };
    let shown = shown(path);
    let checked = match &device {
        Some(device) => check_and_repair(arguments, mode, path, device, &interrupt),
        None => check_in_store(arguments, mode, (path, &shown), &interrupt),
    };
    match checked {
        Ok(code) => code,
        Err(error) => {
            output::complain(format_args!("sfs-fsck: {}: {error}", shown.display()));
            match error {
                FsckError::Cancelled => CANCELLED,
                FsckError::SuperblocksLost => DAMAGED,
                FsckError::NoSpace | FsckError::NotConverging => DAMAGED | FAILED,
                _ => FAILED,
            }
        }
    }
}

/// Returns a device or URL for people.
fn shown(path: &Path) -> PathBuf {
    match sfs_object::is_store_url(path.as_os_str()) {
        true => sfs_object::shown_url(&path.to_string_lossy()).into(),
        false => path.to_owned(),
    }
}

/// Checks the volume in the store at `url`, shown as `shown`, and repairs it as `mode` allows.
fn check_in_store(
    arguments: &CheckArguments,
    mode: RunMode,
    (url, shown): (&Path, &Path),
    interrupt: &InterruptFlag,
) -> Result<u8, FsckError> {
    let failed = |error: &StoreError| {
        output::complain(format_args!("sfs-fsck: {}: {error}", shown.display()));
        Ok(if matches!(error, StoreError::Usage(_)) { USAGE } else { FAILED })
    };
    let repairs = matches!(mode, RunMode::Preen | RunMode::Repair);
    match (&arguments.cache, mode) {
        (Some(cache), _) if repairs => {
            let used = match StoreInUse::open(url, cache, arguments.key_file.as_deref()) {
                Ok(used) => used,
                Err(error) => return failed(&error),
            };
            let arguments = arguments.without_cache();
            let checked = check_and_repair(&arguments, mode, shown, &used.device(), interrupt);
            match used.close() {
                Ok(()) => checked,
                Err(error) => {
                    let code = failed(&error)?;
                    checked.map(|done| done | code)
                }
            }
        }
        (Some(_), _) => failed(&StoreError::Usage(
            "a check reads what is in the store alone: leave --cache out, or give -y or -p",
        )),
        (None, RunMode::Repair) => failed(&StoreError::Usage(
            "a repair writes through the local cache of the volume: give --cache FILE, as for the mount",
        )),
        (None, _) => check_newest(arguments, mode, (url, shown), interrupt),
    }
}

/// Opens the device for exclusive use; prints the reason if that fails.
fn open(path: &Path, mode: RunMode) -> Option<Arc<dyn Device>> {
    let access = if mode == RunMode::Check { Access::ReadOnly } else { Access::ReadWrite };
    if access == Access::ReadWrite
        && let Err(error) = sfs_mkfs::refuse_in_use(path)
    {
        output::complain(format_args!("sfs-fsck: {error}"));
        return None;
    }
    let opened = FileDevice::open_patiently(path, access, || {
        let device = path.display();
        output::complain(format_args!(
            "sfs-fsck: waiting for another program, such as udev, that has {device} locked"
        ));
    });
    match opened {
        Ok(device) => Some(Arc::new(device)),
        Err(error) => {
            let advice = match error.kind {
                OpenErrorKind::Busy => "; unmount it first",
                _ => "",
            };
            output::complain(format_args!("sfs-fsck: {error}{advice}"));
            None
        }
    }
}

/// Checks the volume, repairs it as `mode` allows, and prints the result. Returns the exit code.
fn check_and_repair(
    arguments: &CheckArguments,
    mode: RunMode,
    path: &Path,
    device: &Arc<dyn Device>,
    interrupt: &InterruptFlag,
) -> Result<u8, FsckError> {
    let is_full = arguments.force || arguments.data || arguments.cache.is_some();
    if mode == RunMode::Preen && !is_full && is_unmounted(&**device)? {
        return Ok(print_unmounted(arguments, path));
    }
    let data = arguments.data;
    let options = RepairOptions { data, preen: mode == RunMode::Preen, now: now() };
    let outcome = match mode {
        RunMode::Preen | RunMode::Repair => {
            with_bar(interrupt, |listener| repair(device, &options, listener))?
        }
        RunMode::Check | RunMode::Ask => {
            let options = CheckOptions { data };
            let before = with_bar(interrupt, |listener| check(&**device, &options, listener))?;
            RepairOutcome { before, ..RepairOutcome::default() }
        }
    };
    let repairs = matches!(mode, RunMode::Preen | RunMode::Repair);
    let (cache, cache_code) = with_cache(arguments, &**device, repairs);
    let mut printed = cache_code
        | print(&match arguments.json {
            true => {
                let mut object = outcome_to_json(&outcome);
                if let Some(cache) = &cache {
                    object["cache"] = cache.to_json();
                }
                format!("{object}\n")
            }
            false => outcome_to_text(path, &outcome, arguments.verbose),
        });
    if let (Some(cache), Some(path), false) = (&cache, &arguments.cache, arguments.json) {
        printed |= print(&cache.to_text(path));
    }
    if mode == RunMode::Ask && outcome.before.errors() > 0 && ask_repair() {
        let outcome = with_bar(interrupt, |listener| repair(device, &options, listener))?;
        printed |= print(&repair_to_text(path, &outcome, arguments.verbose));
        return Ok(printed | exit_code(&outcome));
    }
    if mode == RunMode::Preen && outcome.after.is_none() && outcome.before.errors() > 0 {
        output::complain(format_args!(
            "sfs-fsck: {}: a repair may lose data; run sfs-fsck -y to repair",
            path.display()
        ));
    }
    Ok(printed | exit_code(&outcome))
}

/// Checks the cache that the arguments name. Returns the result, and its exit code.
fn with_cache(
    arguments: &CheckArguments,
    disk: &dyn Device,
    repairs: bool,
) -> (Option<CacheOutcome>, u8) {
    let Some(path) = &arguments.cache else { return (None, CLEAN) };
    match check_cache(path, disk, (arguments.data, repairs)) {
        Ok(cache) => {
            let repaired = if cache.was_emptied { REPAIRED } else { CLEAN };
            let damaged = if cache.is_damaged() { DAMAGED } else { CLEAN };
            (Some(cache), repaired | damaged)
        }
        Err(reason) => {
            output::complain(format_args!("sfs-fsck: {reason}"));
            (None, FAILED)
        }
    }
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { secs: now.as_secs() as i64, nanos: now.subsec_nanos() }
}

/// Asks whether to repair. A failed question or answer counts as a no.
fn ask_repair() -> bool {
    let mut answer = String::new();
    let _ = output::print("Repair? [y/N] ");
    let _ = stdin().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}
