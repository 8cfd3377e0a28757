//! The memory that a process may use: the minimum of the limits of its control groups and of its
//! address space, and of the memory of the machine.
//!
//! A limit that cannot be read counts as none, so a system without `/proc` has no limit.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Origin of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Memory of the machine.
    Machine,
    /// `memory.max` of a control group, or `memory.limit_in_bytes` of version 1.
    ControlGroup,
    /// Address space of the process: RLIMIT_AS, which `ulimit -v` sets.
    AddressSpace,
}

/// Prints the origin as a noun for messages.
impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "memory of the machine",
            Self::ControlGroup => "memory limit of the control group",
            Self::AddressSpace => "limit of the address space (ulimit -v)",
        })
    }
}

/// Limit of the memory that the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Limit in bytes; `u64::MAX` without a limit.
    pub bytes: u64,
    /// Origin of the limit.
    pub kind: LimitKind,
}

impl MemoryLimit {
    /// Reads the smallest limit of this process.
    pub fn of_this_process() -> Self {
        Self::read(Path::new("/"))
    }

    /// Reads the smallest limit in the files of a system below `root`.
    fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let limits = [
            (LimitKind::Machine, machine(&text("proc/meminfo"))),
            (LimitKind::ControlGroup, control_group(root, &text("proc/self/cgroup"))),
            (LimitKind::AddressSpace, address_space(&text("proc/self/limits"))),
        ];
        let known =
            limits.into_iter().filter_map(|(kind, bytes)| Some(Self { kind, bytes: bytes? }));
        let none = Self { bytes: u64::MAX, kind: LimitKind::Machine };
        known.min_by_key(|limit| limit.bytes).unwrap_or(none)
    }
}

/// Returns the memory in bytes that programs can still get without swapping; `None` if the kernel does not tell.
pub fn available_bytes() -> Option<u64> {
    line_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// Returns the memory of the machine from the text of `/proc/meminfo`.
fn machine(meminfo: &str) -> Option<u64> {
    line_of(meminfo, "MemTotal:")
}

/// Returns the bytes in the line `name` of the text of `/proc/meminfo`.
fn line_of(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the soft limit of the address space from the text of `/proc/self/limits`.
fn address_space(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the smallest limit of the groups that the text of `/proc/self/cgroup` names, and of their ancestors.
fn control_group(root: &Path, groups: &str) -> Option<u64> {
    groups.lines().filter_map(|line| group_limit(root, line)).min()
}

/// Returns the limit of one line, such as `0::/a/b` or `4:memory:/a/b`.
fn group_limit(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (mounts, file): (&[&str], &str) = match controllers {
        "" => (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            (&["sys/fs/cgroup/memory"], "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let limit_of = |group: PathBuf| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
    let path = Path::new(path.trim_start_matches('/'));
    let groups = mounts
        .iter()
        .flat_map(|mount| path.ancestors().map(move |ancestor| root.join(mount).join(ancestor)));
    groups.filter_map(limit_of).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the files of a system into a new directory.
    fn system(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("sfs-limit-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        root
    }

    fn read(name: &str, files: &[(&str, &str)]) -> MemoryLimit {
        let root = system(name, files);
        let limit = MemoryLimit::read(&root);
        let _ = fs::remove_dir_all(root);
        limit
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:      1048576 kB\nMemFree: 5 kB\n");

    #[test]
    fn the_smallest_limit_wins() {
        let kind = LimitKind::Machine;
        assert_eq!(read("machine", &[MACHINE]), MemoryLimit { bytes: 1 << 30, kind });
        assert_eq!(read("nothing", &[]), MemoryLimit { bytes: u64::MAX, kind });
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax address space  134217728  unlimited  bytes\n";
        let limit = read("space", &[MACHINE, ("proc/self/limits", limits)]);
        assert_eq!(limit, MemoryLimit { bytes: 128 << 20, kind: LimitKind::AddressSpace });
        let none = "Max address space  unlimited  unlimited  bytes\n";
        assert_eq!(read("unlimited", &[MACHINE, ("proc/self/limits", none)]).kind, kind);
    }

    #[test]
    fn a_limit_of_an_ancestor_holds_in_both_versions_of_control_groups() {
        let kind = LimitKind::ControlGroup;
        let second = [
            MACHINE,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "50331648\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ];
        assert_eq!(read("v2", &second), MemoryLimit { bytes: 48 << 20, kind });
        let first = [
            MACHINE,
            ("proc/self/cgroup", "5:cpu,memory:/a/b\n1:name=systemd:/c\n0::/\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "67108864\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(read("v1", &first), MemoryLimit { bytes: 64 << 20, kind });
    }
}
