//! Paths of a mount's sockets: a directory for each user, and the device number of the filesystem as name. The control
//! socket has the end `.sock`, and that of the metrics `.metrics`.
//!
//! A socket is made only in a directory that other users cannot reach or replace. A socket that a dead daemon has
//! left is replaced, and the end of a mount does not remove the socket of a later one.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::unistd::geteuid;
use rustix::fs::{Mode, OFlags};
use sfs_system::mountinfo::DeviceNumber;

/// Directory of root's sockets.
const OF_ROOT: &str = "/run/sfs";

/// Directory with a runtime directory for each user, below which the user's sockets are.
const OF_USERS: &str = "/run/user";

/// Directory for sockets of users without a runtime directory, as in a container or under sudo.
const WITHOUT_RUNTIME: &str = "/tmp";

/// Permission bits of a mode for group and others.
const OTHERS: u32 = 0o077;

/// Permission bits with which others could put files into a directory.
const OTHERS_WRITE: u32 = 0o022;

/// Permission bit of a directory in which users can remove or rename only their own files.
const STICKY: u32 = 0o1000;

/// Returns the directories that the sockets of `owner` may be in, the preferred one first.
pub(super) fn directories(owner: u32) -> Vec<PathBuf> {
    let own = owner == geteuid().as_raw();
    of_owner(owner, env::var_os("XDG_RUNTIME_DIR").filter(|_| own))
}

fn of_owner(owner: u32, runtime: Option<OsString>) -> Vec<PathBuf> {
    if owner == 0 {
        return vec![OF_ROOT.into()];
    }
    let usual = Path::new(OF_USERS).join(owner.to_string());
    let bases = runtime.map(PathBuf::from).filter(|path| path.is_absolute()).into_iter();
    let last = Path::new(WITHOUT_RUNTIME).join(format!("sfs-{owner}"));
    bases.chain([usual]).map(|base| base.join("sfs")).chain([last]).collect()
}

/// Returns the name of the socket of the filesystem with device number `number`.
pub(super) fn name(number: DeviceNumber) -> String {
    format!("{}-{}.sock", number.major, number.minor)
}

/// Returns the name of the socket for the metrics of the filesystem with device number `number`.
pub(super) fn metrics_name(number: DeviceNumber) -> String {
    format!("{}-{}.metrics", number.major, number.minor)
}

/// Socket that listens. Dropping it removes its file, if it belongs to this program.
pub(crate) struct BoundSocket {
    path: PathBuf,
    /// `false` as long as the socket is that of another program, which may go on with it.
    owns: Arc<AtomicBool>,
    /// The socket's file. While it is open, no other file gets its inode number.
    file: File,
}

impl BoundSocket {
    /// Returns the directory of the socket's file.
    pub(crate) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

/// Listens for the metrics of the filesystem with device number `number`, beside the control socket of this user.
pub(crate) fn listen_for_metrics(number: DeviceNumber) -> io::Result<(UnixListener, BoundSocket)> {
    listen(&directories(geteuid().as_raw()), &metrics_name(number))
}

/// Goes on with the socket for metrics of another program, which has it until `owns` is `true`.
pub(crate) fn adopt_for_metrics(
    listener: OwnedFd,
    owns: Arc<AtomicBool>,
) -> io::Result<(UnixListener, BoundSocket)> {
    adopt(listener, owns)
}

/// Listens at `name` in the first of `directories` that exists and is safe.
pub(super) fn listen(
    directories: &[PathBuf],
    name: &str,
) -> io::Result<(UnixListener, BoundSocket)> {
    let mut outcome = Err(ErrorKind::NotFound.into());
    for directory in directories {
        outcome = prepare(directory).and_then(|()| bind(directory.join(name)));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Makes `directory` if it does not exist. The directory must belong to this user alone, and no other user may be able to
/// replace it.
fn prepare(directory: &Path) -> io::Result<()> {
    let parent = fs::metadata(directory.parent().unwrap_or(Path::new("/")))?;
    let user = geteuid().as_raw();
    let is_shared = parent.mode() & OTHERS_WRITE != 0 && parent.mode() & STICKY == 0;
    let is_safe = [0, user].contains(&parent.uid()) && !is_shared;
    if !is_safe {
        return Err(refused(directory, "other users can write to the parent directory"));
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let made = fs::symlink_metadata(directory)?;
    if !made.is_dir() || made.uid() != user || made.mode() & OTHERS != 0 {
        return Err(refused(directory, "not a directory that only this user can access"));
    }
    Ok(())
}

fn refused(directory: &Path, reason: &str) -> io::Error {
    let text = format!("{}: {reason}", directory.display());
    io::Error::new(ErrorKind::PermissionDenied, text)
}

/// Binds a socket to `path`. A file there is left from a daemon whose mount is gone, as the kernel gives a device
/// number to one mount at a time.
fn bind(path: PathBuf) -> io::Result<(UnixListener, BoundSocket)> {
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let file = open(&path)?;
    Ok((listener, BoundSocket { path, owns: Arc::new(true.into()), file }))
}

/// Returns what [`listen`] has returned in another program, which has the socket until `owns` is `true`.
pub(super) fn adopt(
    listener: OwnedFd,
    owns: Arc<AtomicBool>,
) -> io::Result<(UnixListener, BoundSocket)> {
    let listener = UnixListener::from(listener);
    let address = listener.local_addr()?;
    let path = address.as_pathname().ok_or(ErrorKind::InvalidInput)?.to_owned();
    let file = open(&path)?;
    Ok((listener, BoundSocket { path, owns, file }))
}

fn open(path: &Path) -> io::Result<File> {
    // Options of the standard library leave O_PATH out where the C library is musl.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if !self.owns.load(Ordering::SeqCst) {
            return;
        }
        // The mount has ended already, and a new mount may have its device number by now.
        let identity = |file: Metadata| (file.dev(), file.ino());
        let there = fs::symlink_metadata(&self.path).map(identity);
        if there.ok() == self.file.metadata().map(identity).ok() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixStream;

    use super::*;

    const NUMBER: DeviceNumber = DeviceNumber { major: 0, minor: 54 };

    #[test]
    fn every_user_has_separate_socket_paths() {
        assert_eq!(of_owner(0, Some("/tmp/x".into())), [Path::new("/run/sfs")]);
        let usual = [Path::new("/run/user/1000/sfs"), Path::new("/tmp/sfs-1000")];
        assert_eq!(of_owner(1000, None), usual);
        assert_eq!(of_owner(1000, Some("relative".into())), usual);
        let all = [Path::new("/mine/sfs"), usual[0], usual[1]];
        assert_eq!(of_owner(1000, Some("/mine".into())), all);
    }

    #[test]
    fn the_socket_of_a_dead_daemon_is_replaced() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directories = [scratch.path().join("sfs")];
        let (listener, first) = listen(&directories, &name(NUMBER)).expect("a socket");
        drop(listener);
        let path = directories[0].join(name(NUMBER));
        assert_eq!(fs::metadata(&path).expect("a socket").mode() & 0o777, 0o600);
        let (_listener, second) = listen(&directories, &name(NUMBER)).expect("another socket");
        // Dropping the first socket does not remove the file of the second.
        drop(first);
        UnixStream::connect(&path).expect("the second socket listens");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn the_socket_of_another_program_stays_until_it_is_handed_over() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directories = [scratch.path().join("sfs")];
        let (listener, theirs) = listen(&directories, &name(NUMBER)).expect("a socket");
        let path = directories[0].join(name(NUMBER));
        for is_handed_over in [false, true] {
            let copy = listener.try_clone().expect("a descriptor").into();
            let owns = Arc::new(AtomicBool::new(false));
            let (_listener, adopted) = adopt(copy, owns.clone()).expect("the socket");
            owns.store(is_handed_over, Ordering::SeqCst);
            drop(adopted);
            assert_eq!(path.exists(), !is_handed_over);
        }
        drop(theirs);
    }

    #[test]
    fn directories_of_others_and_links_are_refused() {
        let scratch = tempfile::tempdir().expect("a directory");
        let refused = |directory: PathBuf| {
            let outcome = listen(&[directory], &name(NUMBER)).map(drop);
            assert_eq!(
                outcome.expect_err("the directory is not safe").kind(),
                ErrorKind::PermissionDenied
            );
        };
        let target = scratch.path().join("target");
        DirBuilder::new().mode(0o700).create(&target).expect("a directory");
        symlink(&target, scratch.path().join("link")).expect("a link");
        refused(scratch.path().join("link"));
        fs::write(scratch.path().join("file"), b"").expect("a file");
        refused(scratch.path().join("file"));
        let open = scratch.path().join("open");
        fs::create_dir(&open).expect("a directory");
        fs::set_permissions(&open, Permissions::from_mode(0o755))
            .expect("the mode of the directory");
        refused(open.clone());
        fs::set_permissions(&open, Permissions::from_mode(0o777))
            .expect("the mode of the directory");
        refused(open.join("sfs"));
        assert!(!open.join("sfs").exists());
        // In a directory like /tmp no user can replace the files of another user.
        fs::set_permissions(&open, Permissions::from_mode(0o1777))
            .expect("the mode of the directory");
        listen(&[open.join("sfs")], &name(NUMBER)).map(drop).expect("a socket");
        assert_eq!(fs::read_dir(target).expect("a directory").count(), 0);
    }
}
