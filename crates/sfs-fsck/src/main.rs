//! `sfs-fsck`: checks and repairs an SFS volume.
//!
//! Owns: the exit codes of fsck(8) and what is printed.
//! Promises: 0 clean, 1 repaired, 4 errors left, 8 no check was possible or its outcome could not be
//! printed, 16 wrong usage, 32 cancelled, added up.
//! Never: writes to the device without -p, -y or a yes.

mod bar;
mod command;
#[expect(unsafe_code, reason = "the only way to hear of an interrupt")]
mod interrupt;

use std::io::{IsTerminal, stdin, stdout};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use clap::error::ErrorKind;
use serde_json::json;
use sfs_core::format::Timestamp;
use sfs_device::{Access, Device, FileDevice, OpenErrorKind};
use sfs_fsck::{
    FsckError, Options, Progress, Repair, Repaired, check, dump, in_words, is_unmounted,
    remembered_lines, remembered_to_json, repair,
};
use sfs_mkfs::output;

use crate::bar::Bar;
use crate::command::{Action, Checking, Command, Dump, Mode};

const CLEAN: u8 = 0;
const REPAIRED: u8 = 1;
const DAMAGED: u8 = 4;
const FAILED: u8 = 8;
const USAGE: u8 = 16;
const CANCELLED: u8 = 32;

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => return usage(&error),
    };
    ExitCode::from(run(&command))
}

fn usage(error: &clap::Error) -> ExitCode {
    // If the terminal is gone, nobody is there to be told.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(USAGE),
    }
}

fn run(command: &Command) -> u8 {
    match (&command.action, &command.checking.device) {
        (Some(Action::Dump(asked)), _) => run_dump(asked),
        (None, Some(device)) => run_check(&command.checking, device),
        (None, None) => USAGE,
    }
}

fn run_dump(asked: &Dump) -> u8 {
    let device = match FileDevice::open_shared(&asked.device, Access::ReadOnly) {
        Ok(device) => device,
        Err(error) => {
            output::complain(format_args!("sfs-fsck: {error}"));
            return FAILED;
        }
    };
    match dump(&device, &asked.what.subject()) {
        Ok(value) if asked.json => tell(&format!("{value}\n")),
        Ok(value) => tell(&in_words(&value)),
        Err(error) => {
            output::complain(format_args!("sfs-fsck: {}: {error}", asked.device.display()));
            FAILED
        }
    }
}

fn run_check(checking: &Checking, path: &Path) -> u8 {
    let is_asked = stdin().is_terminal() && stdout().is_terminal();
    let Some(mode) = checking.mode().or(is_asked.then_some(Mode::Ask)) else {
        output::complain(format_args!(
            "sfs-fsck: not on a terminal: give -n to check, -p or -y to repair"
        ));
        return FAILED;
    };
    let Some(device) = open(path, mode) else { return FAILED };
    interrupt::listen();
    match carry_out(checking, mode, path, &device) {
        Ok(code) => code,
        Err(error) => {
            output::complain(format_args!("sfs-fsck: {}: {error}", path.display()));
            match error {
                FsckError::Cancelled => CANCELLED,
                FsckError::SuperblocksLost => DAMAGED,
                FsckError::NoRoom | FsckError::NoEnd => DAMAGED | FAILED,
                _ => FAILED,
            }
        }
    }
}

/// Opens the device for itself; says why, if it cannot.
fn open(path: &Path, mode: Mode) -> Option<Arc<dyn Device>> {
    let access = if mode == Mode::Check { Access::ReadOnly } else { Access::ReadWrite };
    if access == Access::ReadWrite
        && let Err(error) = sfs_mkfs::refuse_in_use(path)
    {
        output::complain(format_args!("sfs-fsck: {error}"));
        return None;
    }
    match FileDevice::open(path, access) {
        Ok(device) => Some(Arc::new(device)),
        Err(error) => {
            let remedy = match error.kind {
                OpenErrorKind::Busy => "; unmount it first",
                _ => "",
            };
            output::complain(format_args!("sfs-fsck: {error}{remedy}"));
            None
        }
    }
}

fn carry_out(
    checking: &Checking,
    mode: Mode,
    path: &Path,
    device: &Arc<dyn Device>,
) -> Result<u8, FsckError> {
    if mode == Mode::Preen && !checking.force && !checking.data && is_unmounted(&**device)? {
        return Ok(match checking.json {
            true => tell(&format!("{}\n", json!({ "clean": true, "unmounted": true }))),
            false => tell(&format!("{}: clean: it was unmounted; -f checks it\n", path.display())),
        });
    }
    let options = Repair { data: checking.data, preen: mode == Mode::Preen, now: now() };
    let repaired = match mode {
        Mode::Preen | Mode::Repair => with_bar(|told| repair(device, &options, told))?,
        Mode::Check | Mode::Ask => {
            let options = Options { data: checking.data };
            let before = with_bar(|told| check(&**device, &options, told))?;
            Repaired { before, ..Repaired::default() }
        }
    };
    let mut told = tell(&in_full(checking, path, &repaired));
    if mode == Mode::Ask && repaired.before.errors() > 0 && wants_repair() {
        let repaired = with_bar(|told| repair(device, &options, told))?;
        told |= tell(&of_repair(path, &repaired));
        return Ok(told | code(&repaired));
    }
    if mode == Mode::Preen && repaired.after.is_none() && repaired.before.errors() > 0 {
        output::complain(format_args!(
            "sfs-fsck: {}: run sfs-fsck -y: a repair may lose something",
            path.display()
        ));
    }
    Ok(told | code(&repaired))
}

/// Prints a report. Nobody could find out again what a repair has lost: if the output does not take it, it
/// goes to where errors go.
fn tell(report: &str) -> u8 {
    match output::print(report) {
        Ok(()) => CLEAN,
        Err(error) => {
            output::complain(format_args!("{report}sfs-fsck: {error}"));
            FAILED
        }
    }
}

fn code(repaired: &Repaired) -> u8 {
    let left = if repaired.errors_left() > 0 { DAMAGED } else { CLEAN };
    left | if repaired.after.is_some() { REPAIRED } else { CLEAN }
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { secs: now.as_secs() as i64, nanos: now.subsec_nanos() }
}

/// Runs `work` with a progress bar, until an interrupt.
fn with_bar<T>(work: impl FnOnce(&mut dyn FnMut(Progress) -> ControlFlow<()>) -> T) -> T {
    let mut bar = Bar::new();
    let result = work(&mut |progress| {
        bar.show(progress);
        match interrupt::heard() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    bar.clear();
    result
}

fn wants_repair() -> bool {
    // Who cannot be asked has not said yes.
    let mut answer = String::new();
    let _ = output::print("Repair? [y/N] ");
    let _ = stdin().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}

/// What was found, and what was done about it.
fn in_full(checking: &Checking, path: &Path, repaired: &Repaired) -> String {
    let report = &repaired.before;
    if checking.json {
        let shown = repaired.after.as_ref().unwrap_or(report);
        let losses = repaired.losses.iter().map(|loss| shown.loss_to_json(loss));
        let mut value = report.to_json();
        value["repaired"] = json!(repaired.after.is_some());
        value["errors_left"] = json!(repaired.errors_left());
        value["losses"] = losses.collect();
        if let Some(left) = &repaired.remembered {
            value["remembered_left"] = remembered_to_json(left);
        }
        return format!("{value}\n");
    }
    let device = path.display();
    let mut text = String::new();
    for finding in report.shown().filter(|finding| checking.verbose || finding.is_error()) {
        text += &format!("{device}: {}\n", report.line(finding));
    }
    let all = report.findings.errors() + report.findings.notes();
    let shown = report.shown().count() as u64;
    if all > shown {
        text += &format!("{device}: {} more findings\n", all - shown);
    }
    if checking.verbose && report.rolled_chunks > 0 {
        text += &format!("{device}: {} chunks past the checkpoint\n", report.rolled_chunks);
    }
    for line in remembered_lines(&report.remembered) {
        text += &format!("{device}: {line}\n");
    }
    text + &format!("{device}: {report}\n") + &of_repair(path, repaired)
}

/// What became of the errors that the volume remembered.
fn of_remembered(path: &Path, repaired: &Repaired) -> String {
    let (device, before) = (path.display(), &repaired.before.remembered);
    match &repaired.remembered {
        Some(left) if !left.is_empty() => format!(
            "{device}: data was not read: what was met there stays remembered; -y --data reads it\n"
        ),
        Some(_) if !before.is_empty() => {
            format!("{device}: the errors that were met are forgotten\n")
        }
        _ => String::new(),
    }
}

/// What is lost, and what is left.
fn of_repair(path: &Path, repaired: &Repaired) -> String {
    let (device, Some(after)) = (path.display(), &repaired.after) else {
        return of_remembered(path, repaired);
    };
    let mut text = String::new();
    for loss in &repaired.losses {
        text += &format!("{device}: {}\n", after.loss_line(loss));
    }
    for finding in after.shown().filter(|finding| finding.is_error()) {
        text += &format!("{device}: left: {}\n", after.line(finding));
    }
    text + &format!("{device}: repaired: {after}\n") + &of_remembered(path, repaired)
}
