//! What is mounted, from /proc/self/mountinfo.
//!
//! Owns: parsing its lines.
//! Promises: names come back as they are, whatever bytes are in them.
//! Never: touches a mount.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountLine {
    /// Where.
    pub(crate) dir: PathBuf,
    /// Type, with the part after the dot.
    pub(crate) kind: String,
    /// What: for us the device's path.
    pub(crate) source: PathBuf,
}

/// All mounts that this process sees, in the order in which they were made.
pub(crate) fn mounts() -> io::Result<Vec<MountLine>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The mount on top at `dir`.
pub(crate) fn at(dir: &Path) -> io::Result<Option<MountLine>> {
    Ok(mounts()?.into_iter().rev().find(|mount| mount.dir == dir))
}

fn parse(line: &[u8]) -> Option<MountLine> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dir = *fields.get(4)?;
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let (kind, source) = (*fields.get(dash + 1)?, *fields.get(dash + 2)?);
    Some(MountLine {
        dir: unescape(dir),
        kind: String::from_utf8_lossy(kind).into_owned(),
        source: unescape(source),
    })
}

/// Undoes the octal escapes of the kernel.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = tail
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line =
            b"36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - fuseblk /dev/sd\\134x rw,user_id=0";
        let mount = parse(line).expect("a line");
        assert_eq!(mount.dir, Path::new("/mnt/a b"));
        assert_eq!(mount.kind, "fuseblk");
        assert_eq!(mount.source, Path::new("/dev/sd\\x"));
        assert_eq!(parse(b"nonsense"), None);
    }
}
