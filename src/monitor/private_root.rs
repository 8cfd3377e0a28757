//! A root directory of their own for the programs of a mount, apart from the one that the system uses.
//!
//! A daemon that is started again would find nothing in an initramfs, whose files are deleted once the root filesystem is mounted. So
//! what it needs is copied into memory, in a mount namespace where nothing else is mounted: no filesystem of the system stays busy by
//! it. The monitor and the programs that it starts live there; acts on the system's mounts are done [`Outside`].

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{chdir, chroot, fchdir, pivot_root};
use rustix::fs::{Mode, OFlags, open};
use sfs_system::mountinfo;

/// Directories of the kernel and of running programs, which are the same in the system and here.
const SHARED: [&str; 4] = ["/dev", "/proc", "/run", "/sys"];

/// Number of links in a path that are followed.
const LINKS_MAX: u32 = 40;

/// Size in bytes and mode of the filesystem in memory: the libraries of a program take some MiB.
const IN_MEMORY: &str = "size=64m,mode=0755";

/// Mount namespace, with a root directory and a working directory in it.
#[derive(Debug)]
struct Place {
    namespace: File,
    root: OwnedFd,
    work: OwnedFd,
}

/// Root directory in memory, in a mount namespace of its own.
#[derive(Debug)]
pub(crate) struct PrivateRoot(Place);

/// Namespace and root directory of the system, as this process had them before it entered a [`PrivateRoot`].
#[derive(Debug)]
pub(super) struct Outside(Place);

impl Place {
    /// Returns where this process is.
    fn here() -> io::Result<Self> {
        let dir = |path: &str| {
            open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        };
        Ok(Self { namespace: File::open("/proc/self/ns/mnt")?, root: dir("/")?, work: dir(".")? })
    }

    /// Takes the calling thread there, which shares its directories with no other.
    fn enter(&self) -> io::Result<()> {
        setns(&self.namespace, CloneFlags::CLONE_NEWNS)?;
        fchdir(&self.root)?;
        chroot(".")?;
        Ok(fchdir(&self.work)?)
    }
}

impl PrivateRoot {
    /// Copies the files `needed` into a root directory in memory. `dir` is any other directory than the present root: in the new
    /// namespace the memory is mounted on it. This process must have one thread, and is where it was afterwards.
    ///
    /// # Errors
    ///
    /// Errors of the system; `NotFound` with the path of a missing file.
    ///
    /// # Panics
    ///
    /// If this process cannot go back, although it could before.
    pub(crate) fn make(dir: &Path, needed: &[PathBuf]) -> io::Result<Self> {
        let before = Place::here()?;
        // Needs the rights of the way back.
        before.enter()?;
        unshare(CloneFlags::CLONE_NEWNS)?;
        let made = make_here(dir, needed).and_then(|()| Place::here());
        before.enter().expect("this process was there before");
        made.map(Self)
    }

    /// Takes this process there, which must have one thread. Returns where it was.
    pub(super) fn enter(self) -> io::Result<Outside> {
        let before = Place::here()?;
        self.0.enter()?;
        Ok(Outside(before))
    }
}

impl Outside {
    /// Does `act` outside.
    pub(super) fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        aside(|| {
            self.0.enter()?;
            Ok(act())
        })
    }

    /// Does `act` outside, in the root directory that the system has now.
    pub(super) fn run_at_root<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        aside(|| {
            // To what is mounted on the root of the namespace, last.
            setns(&self.0.namespace, CloneFlags::CLONE_NEWNS)?;
            Ok(act())
        })
    }
}

/// Does `act` in a thread that shares its directories with no other.
fn aside<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let act = || {
        unshare(CloneFlags::CLONE_FS)?;
        act()
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, act)?;
        thread.join().map_err(|_| io::Error::other("a defect in sfs: a panic"))?
    })
}

/// Makes a root directory in memory that of this process, which is alone in its mount namespace.
fn make_here(dir: &Path, needed: &[PathBuf]) -> io::Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    // The memory may hide any of them.
    let files = needed.iter().map(|path| CopiedFile::open(path)).collect::<io::Result<Vec<_>>>()?;
    let shared = SHARED.map(|path| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("sfs-root"), dir, Some("tmpfs"), flags, Some(IN_MEMORY))?;
    let root = open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // Another directory may have come to the path, and a root directory is not hidden by what is mounted on it.
    if fs::read_dir(format!("/proc/self/fd/{}", root.as_raw_fd()))?.next().is_some() {
        return Err(io::Error::other(format!("{}: the mount was not found", dir.display())));
    }
    fchdir(&root)?;
    files.iter().try_for_each(CopiedFile::copy_here)?;
    for (path, from) in SHARED.iter().zip(shared) {
        let to = below(Path::new(path));
        fs::create_dir_all(&to)?;
        let from = from?;
        let path = format!("/proc/self/fd/{}", from.as_raw_fd());
        mount(Some(&*path), &to, none, MsFlags::MS_BIND, none)?;
    }
    leave_old_root()
}

/// Makes the working directory, which is that of a mount, the root directory, and takes all other mounts out of this namespace.
fn leave_old_root() -> io::Result<()> {
    if pivot_root(".", ".").is_ok() {
        // Both are mounted at the same place, the old one on top.
        umount2(".", MntFlags::MNT_DETACH)?;
        return Ok(());
    }
    // The filesystem of an initramfs stays the root of each namespace. What is mounted on it is hidden by the move, and found from it.
    let old_root = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mounts = mountinfo::mounts()?;
    let none = None::<&str>;
    mount(Some("."), "/", none, MsFlags::MS_MOVE, none)?;
    chroot(".")?;
    fchdir(&old_root)?;
    for mount in mounts.iter().rev().filter(|mount| mount.dir != Path::new("/")) {
        let _ = umount2(&below(&mount.dir), MntFlags::MNT_DETACH);
    }
    Ok(chdir("/")?)
}

/// Returns `path`, which is absolute, below the working directory.
fn below(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

/// File that is copied, with the links on the way to it.
struct CopiedFile {
    /// Links, with their targets.
    links: Vec<(PathBuf, PathBuf)>,
    path: PathBuf,
    content: File,
}

impl CopiedFile {
    /// Opens the file at `path`, which is absolute.
    fn open(path: &Path) -> io::Result<Self> {
        let mut links = Vec::new();
        let mut rest: Vec<_> = path.components().map(|name| name.as_os_str().to_owned()).collect();
        rest.reverse();
        let mut at = PathBuf::from("/");
        while let Some(name) = rest.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(name);
            let Ok(target) = at.read_link() else { continue };
            if links.len() as u32 == LINKS_MAX {
                return Err(ErrorKind::TooManyLinks.into());
            }
            rest.extend(target.components().rev().map(|name| name.as_os_str().to_owned()));
            links.push((at.clone(), target));
            at.pop();
        }
        let content = File::open(&at)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", at.display())))?;
        Ok(Self { links, path: at, content })
    }

    /// Copies it below the working directory.
    fn copy_here(&self) -> io::Result<()> {
        for (link, target) in &self.links {
            let link = below(link);
            make_parent(&link)?;
            match symlink(target, &link) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        let path = below(&self.path);
        make_parent(&path)?;
        let mut copy = match File::create_new(&path) {
            // By another of its names.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
            made => made?,
        };
        io::copy(&mut &self.content, &mut copy)?;
        copy.set_permissions(self.content.metadata()?.permissions())
    }
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_links_on_the_way_to_a_file_are_found() {
        let scratch = tempfile::tempdir().expect("a directory");
        let dir = scratch.path().canonicalize().expect("a directory");
        fs::create_dir(dir.join("real")).expect("room");
        fs::write(dir.join("real/file"), "content").expect("room");
        symlink("real", dir.join("link")).expect("room");
        symlink(dir.join("link/../link/./file"), dir.join("name")).expect("room");
        let found = CopiedFile::open(&dir.join("name")).expect("the file");
        assert_eq!(found.path, dir.join("real/file"));
        let links: Vec<_> = found.links.iter().map(|(link, _)| link.clone()).collect();
        assert_eq!(links, [dir.join("name"), dir.join("link"), dir.join("link")]);
        symlink("round", dir.join("round")).expect("room");
        let error = CopiedFile::open(&dir.join("round")).err().expect("it has no end");
        assert_eq!(error.kind(), ErrorKind::TooManyLinks);
        let error = CopiedFile::open(&dir.join("missing")).err().expect("nothing");
        assert!(error.to_string().contains("missing"), "{error}");
    }
}
