//! The frame of every program's `main`: parsing the command line, and ending with a status and one line.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser};
use sfs_system::output;

use crate::exit_error::ExitError;

/// Arguments that mount(8) and umount(8) pass to their helpers, without meaning here.
#[derive(Args, Clone, Debug)]
pub struct IgnoredFlags {
    /// Leave /etc/mtab alone
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    /// The type, with its subtype
    #[arg(short = 't', hide = true)]
    kind: Option<String>,
    /// The namespace
    #[arg(short = 'N', hide = true)]
    namespace: Option<String>,
}

/// Returns whether this program was called by a name that begins with `prefix`, as a helper of mount(8) or umount(8).
pub fn is_called(prefix: &str) -> bool {
    let name = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = name.as_ref().and_then(|path| path.file_name());
    name.is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

/// Parses the command line, does `work`, and returns the exit code. An error is printed as one line that begins
/// with the program's name.
pub fn run<A: Parser>(work: impl FnOnce(A) -> Result<(), ExitError>) -> ExitCode {
    let outcome = match A::try_parse() {
        Ok(arguments) => work(arguments),
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            // An error of a closed terminal is ignored.
            let _ = error.print();
            Ok(())
        }
        Err(error) => Err(ExitError::arguments(&error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // A status may have been explained on the standard output.
            if !failure.to_string().is_empty() {
                output::complain(format_args!("{}: {failure}", A::command().get_name()));
            }
            ExitCode::from(failure.status)
        }
    }
}
