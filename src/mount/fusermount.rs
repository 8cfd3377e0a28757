//! Mounting through the set-uid program `fusermount3`, which sends the open `/dev/fuse` back over a socket.
//!
//! If `fusermount3` refuses the mount, its message reaches the user.

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Output};

use nix::mount::MsFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use super::mount_target::MountTarget;
use crate::exit_error::ExitError;
use crate::mount_options::{MS_NOSYMFOLLOW, MountOptions};

const HELPER: &str = "fusermount3";

/// Environment variable in which `fusermount3` expects the number of the socket.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// Mounts `target` and returns the open `/dev/fuse`.
pub(super) fn mount(target: &MountTarget<'_>, options: &MountOptions) -> Result<File, ExitError> {
    if options.flags.contains(MS_NOSYMFOLLOW) {
        return Err(ExitError::usage(format_args!(
            "nosymfollow: {HELPER} does not support this option; mount as root"
        )));
    }
    let socket = |error| ExitError::system(format_args!("{HELPER}: {error}"));
    let (ours, theirs) = sockets().map_err(socket)?;
    let mut command = Command::new(HELPER);
    command.env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string());
    command.arg("-o").arg(list(target, options)).arg("--").arg(target.dir);
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => ExitError::system(format_args!(
            "{HELPER} is missing; install the package fuse3, or mount as root"
        )),
        _ => socket(error),
    })?;
    drop(theirs);
    match receive(&ours) {
        Ok(Some(channel)) if output.status.success() => Ok(channel.into()),
        Ok(_) => Err(refused(target, &output)),
        Err(error) => Err(socket(error)),
    }
}

fn refused(target: &MountTarget<'_>, output: &Output) -> ExitError {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim().trim_start_matches("fusermount3: ");
    let text = if text.is_empty() { "fusermount3 failed without a message" } else { text };
    let remedy = if text.contains("Operation not permitted") {
        "; is fusermount3 set-uid root? chmod u+s $(which fusermount3)"
    } else {
        ""
    };
    let dir = target.dir.display();
    ExitError::mount(format_args!("{dir}: {}{remedy}", text.replace('\n', "; ")))
}

/// Returns the comma list of options for `fusermount3`.
fn list(target: &MountTarget<'_>, options: &MountOptions) -> String {
    let device = target.device.display().to_string();
    let device = device.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("fsname={device},subtype=sfs,default_permissions");
    let flags = [
        (MsFlags::MS_RDONLY, "ro"),
        (MsFlags::MS_NOEXEC, "noexec"),
        (MsFlags::MS_NOATIME, "noatime"),
        (MsFlags::MS_SYNCHRONOUS, "sync"),
    ];
    let wanted = flags.into_iter().filter(|(flag, _)| options.flags.contains(*flag));
    let names = wanted.map(|(_, name)| name).chain(options.allow_other.then_some("allow_other"));
    names.for_each(|name| list.extend([",", name]));
    list
}

/// Makes a pair of sockets: the end of this process, and the end that `fusermount3` inherits.
fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty());
    let (ours, theirs) = socketpair(kind.0, kind.1, kind.2, None)?;
    fcntl_setfd(&ours, FdFlags::CLOEXEC)?;
    Ok((ours, theirs))
}

/// Receives the descriptor that `fusermount3` has sent; `None` if it sent none.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut sent = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(sent.next().and_then(|mut descriptors| descriptors.next()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_comma_in_a_path_is_escaped() {
        let (device, dir) = (Path::new("/a,b\\c"), Path::new("/mnt"));
        let target = MountTarget { device, is_block_device: false, dir };
        let options =
            MountOptions::parse(["ro,allow_other"], false).expect("the options are known");
        let expected = "fsname=/a\\,b\\\\c,subtype=sfs,default_permissions,ro,allow_other";
        assert_eq!(list(&target, &options), expected);
    }
}
