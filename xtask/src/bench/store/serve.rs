//! The simulated store as a process of its own, so that its processor time is known apart.
//!
//! It prints its address, and answers lines: `traffic`, `stored PREFIX`, `clear PREFIX`. It ends with its standard input.

use std::io::{self, BufRead as _, Write as _};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use sfs_servers::{Link, SimulatedStore};

/// Time of a request without its bytes.
pub(super) const LATENCY: Duration = Duration::from_millis(30);
/// Bytes of all requests and replies together in a second.
pub(super) const BYTES_PER_SECOND: u64 = 100_000_000;

pub(super) fn run() -> Result<()> {
    let store = SimulatedStore::over(Link::new(LATENCY, BYTES_PER_SECOND));
    let store = store.map_err(|error| anyhow!(error))?;
    let mut out = io::stdout();
    writeln!(out, "{}", store.address())?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("traffic", _) => {
                let traffic = store.traffic();
                writeln!(out, "{} {} {}", traffic.requests, traffic.received, traffic.sent)?;
            }
            ("stored", prefix) => {
                let (objects, bytes) = store.stored(prefix);
                writeln!(out, "{objects} {bytes}")?;
            }
            ("clear", prefix) => {
                store.clear(prefix);
                writeln!(out)?;
            }
            _ => bail!("{line}: not known"),
        }
    }
    Ok(())
}
