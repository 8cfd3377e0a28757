//! `sfs-ctl`: shows the state of a volume, looks inside, freezes it, changes its size, copies it, and verifies it.

#[cfg(feature = "view")]
mod view;

use std::process::ExitCode;

use sfs::command_line::{CtlArguments, CtlCommand, ImageCommand};
use sfs::{
    ExitError, asked_work_command, cache_command, defrag_command, file_command, freeze_command,
    health, hot_command, image, metrics_command, resize, scrub_command, segments_command, stat,
    trace_command, upgrade_command,
};
#[cfg(feature = "view")]
use view::{report_command, top_command};

fn main() -> ExitCode {
    sfs::program::run(|CtlArguments { command, .. }| match command {
        CtlCommand::Stat { path, json, verbose, endurance, price } => {
            let report = stat::stat(&path)?.assuming_endurance(endurance).at(price.as_ref());
            print(&match (json, verbose) {
                (true, _) => report.to_json(),
                (false, true) => format!("{report:#}"),
                (false, false) => report.to_string(),
            })
        }
        CtlCommand::Health { path, json, endurance } => {
            // Other statuses mean that the device is failing, or a warning.
            let found = health::health(&path, endurance)?;
            let text = if json { found.to_json() } else { health::text(&found) };
            print(&text).map_err(|error| health::unknown(&error))?;
            health::status(&found)
        }
        CtlCommand::Freeze { mount, timeout, json } => {
            freeze_command::freeze(&mount, timeout)?;
            match json {
                true => {
                    print(&format!(r#"{{"version":1,"frozen":true,"timeout_secs":{timeout}}}"#))
                }
                false => Ok(()),
            }
        }
        CtlCommand::Thaw { mount, json } => {
            freeze_command::thaw(&mount)?;
            if json { print(r#"{"version":1,"frozen":false}"#) } else { Ok(()) }
        }
        CtlCommand::Upgrade { mount, timeout, json } => {
            print(&upgrade_command::upgrade(&mount, timeout, json)?)
        }
        CtlCommand::Hot(arguments) => print(&hot_command::run(&arguments)?),
        CtlCommand::File(arguments) => print(&file_command::run(&arguments)?),
        CtlCommand::Clean(arguments) => print(&asked_work_command::clean(&arguments)?),
        CtlCommand::Defrag(arguments) => print(&defrag_command::run(&arguments)?),
        CtlCommand::Trim(arguments) => print(&asked_work_command::trim(&arguments)?),
        CtlCommand::Checkpoint(arguments) => print(&asked_work_command::checkpoint(&arguments)?),
        CtlCommand::Scrub(command) => scrub_command::run(&command, print),
        CtlCommand::Metrics(arguments) => print(&metrics_command::metrics(&arguments)?),
        CtlCommand::Trace(arguments) => trace_command::trace(&arguments),
        CtlCommand::Resize { path, size } => {
            let report = resize::resize(&path, size)?;
            print(&format!("{}: {report}", path.display()))
        }
        CtlCommand::Cache(command) => print(&cache_command::run(&command)?),
        CtlCommand::Segments(arguments) => segments_command::run(&arguments),
        #[cfg(feature = "view")]
        CtlCommand::Top(arguments) => top_command::run(&arguments),
        #[cfg(feature = "view")]
        CtlCommand::Report(arguments) => report_command::run(&arguments),
        CtlCommand::Image(ImageCommand::Save { device, file, force }) => {
            let copied = image::save(&device, &file, force)?;
            match file.as_os_str() == "-" {
                true => Ok(()),
                false => print(&format!("{}: saved {copied}", file.display())),
            }
        }
        CtlCommand::Image(ImageCommand::Restore { file, device, force }) => {
            let copied = image::restore(&file, &device, force)?;
            print(&format!("{}: restored {copied}", device.display()))
        }
    })
}

fn print(text: &str) -> Result<(), ExitError> {
    sfs_system::output::print(format_args!("{}\n", text.trim_end())).map_err(ExitError::system)
}
