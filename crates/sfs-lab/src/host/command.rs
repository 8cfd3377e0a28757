//! Programs of this machine: how to find and to run one.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Folders that a user's `PATH` may lack.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Returns the path of a program: in the folder of this program, or else where it is installed.
pub fn program(name: &str) -> Option<PathBuf> {
    let ours = std::env::current_exe().ok()?.parent()?.join(name);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    let installed = folders.map(|folder| folder.join(name));
    std::iter::once(ours).chain(installed).find(|path| path.is_file())
}

/// Runs a command that prints only errors.
///
/// # Errors
///
/// If the command cannot be started or fails. The error has the last line of the command's standard
/// error.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| shown.clone())?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        bail!("{shown}: {}: {}", output.status, printed.trim().lines().last().unwrap_or_default());
    }
    Ok(())
}

/// Returns the number of bytes that a process has written by system calls; `None` if the process
/// has ended.
pub(super) fn written_bytes(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
}
