//! `sfs-fsck`: checks and repairs an SFS volume.
//!
//! Owns: the exit codes of fsck(8) and what is printed.
//! Promises: 0 clean, 1 repaired, 4 errors left, 8 no check was possible, 16 wrong usage, 32 cancelled,
//! added up.
//! Never: writes to the device without -p, -y or a yes.

mod bar;
mod command;
#[expect(unsafe_code, reason = "the only way to hear of an interrupt")]
mod interrupt;

use std::io::{IsTerminal, Write, stdin, stdout};
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
use sfs_fsck::{FsckError, Options, Progress, Repair, Repaired, check, is_unmounted, repair};

use crate::bar::Bar;
use crate::command::{Action, Checking, Command, Mode};

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
        (Some(Action::Dump(_)), _) | (None, None) => FAILED,
        (None, Some(device)) => run_check(&command.checking, device),
    }
}

fn run_check(checking: &Checking, path: &Path) -> u8 {
    let is_asked = stdin().is_terminal() && stdout().is_terminal();
    let Some(mode) = checking.mode().or(is_asked.then_some(Mode::Ask)) else {
        eprintln!("sfs-fsck: not on a terminal: give -n to check, -p or -y to repair");
        return FAILED;
    };
    let Some(device) = open(path, mode) else { return FAILED };
    interrupt::listen();
    match carry_out(checking, mode, path, &device) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sfs-fsck: {}: {error}", path.display());
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
        eprintln!("sfs-fsck: {error}");
        return None;
    }
    match FileDevice::open(path, access) {
        Ok(device) => Some(Arc::new(device)),
        Err(error) => {
            let remedy = match error.kind {
                OpenErrorKind::Busy => "; unmount it first",
                _ => "",
            };
            eprintln!("sfs-fsck: {error}{remedy}");
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
        match checking.json {
            true => println!("{}", json!({ "clean": true, "unmounted": true })),
            false => println!("{}: clean: it was unmounted; -f checks it", path.display()),
        }
        return Ok(CLEAN);
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
    print(checking, path, &repaired);
    if mode == Mode::Ask && repaired.before.errors() > 0 && wants_repair() {
        let repaired = with_bar(|told| repair(device, &options, told))?;
        print_repair(path, &repaired);
        return Ok(code(&repaired));
    }
    if mode == Mode::Preen && repaired.after.is_none() && repaired.before.errors() > 0 {
        eprintln!("sfs-fsck: {}: run sfs-fsck -y: a repair may lose something", path.display());
    }
    Ok(code(&repaired))
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
    print!("Repair? [y/N] ");
    // Who cannot be asked has not said yes.
    let mut answer = String::new();
    let _ = stdout().flush();
    let _ = stdin().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}

fn print(checking: &Checking, path: &Path, repaired: &Repaired) {
    let report = &repaired.before;
    if checking.json {
        let shown = repaired.after.as_ref().unwrap_or(report);
        let losses = repaired.losses.iter().map(|loss| shown.loss_to_json(loss));
        let mut value = report.to_json();
        value["repaired"] = json!(repaired.after.is_some());
        value["errors_left"] = json!(repaired.errors_left());
        value["losses"] = losses.collect();
        println!("{value}");
        return;
    }
    let device = path.display();
    for finding in report.shown().filter(|finding| checking.verbose || finding.is_error()) {
        println!("{device}: {}", report.line(finding));
    }
    let all = report.findings.errors() + report.findings.notes();
    let shown = report.shown().count() as u64;
    if all > shown {
        println!("{device}: {} more findings", all - shown);
    }
    if checking.verbose && report.rolled_chunks > 0 {
        println!("{device}: {} chunks past the checkpoint", report.rolled_chunks);
    }
    println!("{device}: {report}");
    print_repair(path, repaired);
}

/// What is lost, and what is left.
fn print_repair(path: &Path, repaired: &Repaired) {
    let (device, Some(after)) = (path.display(), &repaired.after) else { return };
    for loss in &repaired.losses {
        println!("{device}: {}", after.loss_line(loss));
    }
    for finding in after.shown().filter(|finding| finding.is_error()) {
        println!("{device}: left: {}", after.line(finding));
    }
    println!("{device}: repaired: {after}");
}
