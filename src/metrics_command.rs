//! `sfs-ctl metrics`: the metrics of a volume, as Prometheus reads them.

use std::path::{Path, PathBuf};

use crate::exit_error::ExitError;
use crate::metrics::{Naming, exposition, to_json};
use crate::stat;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct MetricsArguments {
    /// Mount point, block device or image file of the volume
    path: PathBuf,
    /// Print a JSON array of the metrics
    #[arg(long)]
    json: bool,
}

/// Returns the metrics of a volume as text.
///
/// # Errors
///
/// Those of [`stat::stat`].
pub fn metrics(arguments: &MetricsArguments) -> Result<String, ExitError> {
    let MetricsArguments { path, json } = arguments;
    let report = stat::stat(Path::new(path))?;
    Ok(match json {
        true => to_json(&report, Naming::Named),
        false => exposition(&report, Naming::Named),
    })
}
