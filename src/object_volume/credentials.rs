//! Credentials in the environment, which the daemon does not need: the program that reaches the store has them from the monitor.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// Begin of the names of variables that the libraries of object stores read.
const PREFIXES: [&[u8]; 3] = [b"AWS_", b"AZURE_", b"GOOGLE_"];

/// Names of variables with the URLs of proxies, which may have passwords.
const PROXIES: [&[u8]; 3] = [b"HTTP_PROXY", b"HTTPS_PROXY", b"ALL_PROXY"];

/// Returns whether a variable may have a secret.
fn is_secret(name: &[u8]) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || PROXIES.iter().any(|proxy| name.eq_ignore_ascii_case(proxy))
}

/// Overwrites the values of such variables in the memory of this process, which `/proc/PID/environ` shows and a defect might give away.
pub(crate) fn forget() -> io::Result<()> {
    let environment = fs::read("/proc/self/environ")?;
    let begin = environment_begin()?;
    let memory = File::options().write(true).open("/proc/self/mem")?;
    let mut at = begin;
    for variable in environment.split_inclusive(|byte| *byte == 0) {
        let value = variable.iter().position(|byte| *byte == b'=').map(|equals| equals + 1);
        if let Some(value) = value
            && is_secret(&variable[..value - 1])
        {
            memory.write_all_at(&vec![0; variable.len() - value], at + value as u64)?;
        }
        at += variable.len() as u64;
    }
    Ok(())
}

/// Returns the address of the environment: field 50 of proc_pid_stat(5).
fn environment_begin() -> io::Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name, in parentheses, may have blanks. Field 3 follows it.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let field = fields.and_then(|fields| fields.split_whitespace().nth(50 - 3));
    let address = field.and_then(|field| field.parse().ok()).filter(|address| *address > 0);
    address.ok_or_else(|| io::ErrorKind::Unsupported.into())
}
