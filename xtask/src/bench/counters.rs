//! Counters of a mounted SFS volume.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::workspace::Programs;

/// Counters by name.
pub(super) type Counters = BTreeMap<String, u64>;

/// Needed part of the output of `sfs-ctl stat --json`.
#[derive(Deserialize)]
struct Stat {
    mount: Activity,
}

#[derive(Deserialize)]
struct Activity {
    counters: Counters,
}

/// Reads the counters of the volume that is mounted at `dir`.
pub(super) fn read(programs: &Programs, dir: &Path) -> Result<Counters> {
    let json = programs.cmd("sfs-ctl").args(["stat", "--json"]).arg(dir).read()?;
    Ok(serde_json::from_str::<Stat>(&json)?.mount.counters)
}

/// Returns by how much the counter `name` has grown.
pub(super) fn increase(before: &Counters, after: &Counters, name: &str) -> Result<u64> {
    let both = after.get(name).zip(before.get(name));
    both.map(|(after, before)| after - before).with_context(|| format!("no {name}"))
}
