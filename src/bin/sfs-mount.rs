//! `sfs-mount`: mounts a volume.

use std::process::ExitCode;

use sfs::ExitError;
use sfs::command_line::MountArguments;
use sfs::mount_options::MountOptions;
use sfs::mount_options::remount::asks_for_remount;
use sfs::mount_session::{self, MountRequest};
use sfs::remount::RemountRequest;

fn main() -> ExitCode {
    sfs::program::run(mount)
}

fn mount(arguments: MountArguments) -> Result<(), ExitError> {
    let lists = || arguments.options.iter().map(String::as_str);
    if asks_for_remount(lists()) {
        let (device, dir) = match &arguments.dir {
            Some(dir) => (Some(arguments.device.as_path()), dir),
            None => (None, &arguments.device),
        };
        return sfs::remount::remount(&RemountRequest {
            device,
            dir,
            options: &arguments.options.join(","),
            sloppy: arguments.sloppy,
            fake: arguments.fake,
        });
    }
    let options = MountOptions::parse(lists(), arguments.sloppy)?;
    let take_over = arguments.take_over()?;
    let Some(dir) = arguments.dir else {
        let device = arguments.device.display();
        return Err(ExitError::usage(format_args!(
            "{device}: the mount point <DIR> is missing; see --help"
        )));
    };
    mount_session::run(&MountRequest {
        device: arguments.device,
        dir,
        options,
        transport: arguments.transport,
        foreground: arguments.foreground,
        verbose: arguments.verbose,
        fake: arguments.fake,
        lists: arguments.options,
        sloppy: arguments.sloppy,
        take_over,
        // An initramfs calls the daemon of a root filesystem by a name that systemd spares at shutdown.
        is_by_mount: ["mount.", "@"].into_iter().any(sfs::program::is_called),
        never_sent_again: arguments.no_resend,
    })
}
