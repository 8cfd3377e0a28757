//! Files without which the daemon of a mount is not started again after its death. None of them may be on the mount: nobody would
//! answer.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Files that are looked up when a program starts and logs, beside the program and its libraries.
const LOOKED_UP: [&str; 5] =
    ["/etc/ld.so.cache", "/dev/null", "/dev/log", "/proc/self/fd", "/lib64/ld-linux-x86-64.so.2"];

/// Returns a file that is needed, and would be below a mount on `dir`, an absolute path without links.
pub(super) fn one_below(dir: &Path) -> io::Result<Option<PathBuf>> {
    let maps = fs::read("/proc/self/maps")?;
    let mut needed = mapped(&String::from_utf8_lossy(&maps));
    needed.push(env::current_exe()?);
    needed.extend(LOOKED_UP.map(PathBuf::from));
    Ok(needed.into_iter().find(|path| is_below(dir, path)))
}

/// Returns the paths in the content of `/proc/self/maps`.
fn mapped(maps: &str) -> Vec<PathBuf> {
    let path = |line: &str| line.find('/').map(|at| PathBuf::from(&line[at..]));
    maps.lines().filter_map(path).collect()
}

/// Returns whether the way to `path`, as it is or without links, leads through `dir`.
fn is_below(dir: &Path, path: &Path) -> bool {
    path.starts_with(dir) || path.canonicalize().is_ok_and(|path| path.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_refused_that_would_hide_the_program() {
        let scratch = tempfile::tempdir().expect("a directory");
        assert_eq!(one_below(scratch.path()).expect("maps"), None);
        let exe = env::current_exe().expect("a path");
        let folder = exe.parent().expect("a folder");
        for dir in [Path::new("/"), folder, Path::new("/dev")] {
            assert!(one_below(dir).expect("maps").is_some(), "{}", dir.display());
        }
        let line = "7f0000-7f1000 r-xp 00000000 08:01 5 /usr/lib/lib c.so\n7f2-7f3 rw-p 0 0:0 0 \n";
        assert_eq!(mapped(line), [Path::new("/usr/lib/lib c.so")]);
        assert!(is_below(Path::new("/usr"), Path::new("/usr/lib/libc.so")));
        assert!(!is_below(Path::new("/us"), Path::new("/usr/lib/libc.so")), "another name");
    }
}
