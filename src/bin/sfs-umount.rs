//! `sfs-umount`: unmounts a volume and waits until everything is on its device.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use sfs::Failure;

#[derive(Parser)]
#[command(name = "sfs-umount", version, disable_version_flag = true)]
/// Unmounts an SFS volume. Returns when everything is on the device.
struct Arguments {
    /// Where it is mounted
    dir: PathBuf,
    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return give_up(&Failure::arguments(&error)),
    };
    match sfs::unmount::unmount(&arguments.dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => give_up(&failure),
    }
}

fn give_up(failure: &Failure) -> ExitCode {
    eprintln!("sfs-umount: {failure}");
    ExitCode::from(failure.status)
}
