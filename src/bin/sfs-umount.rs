//! `sfs-umount`: unmounts a volume and waits until everything is on its device.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

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
        Err(error) => {
            let _ = error.print();
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if asked { ExitCode::SUCCESS } else { ExitCode::from(1) };
        }
    };
    match sfs::unmount::unmount(&arguments.dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("sfs-umount: {failure}");
            ExitCode::from(failure.status)
        }
    }
}
