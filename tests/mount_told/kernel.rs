//! Properties of the running kernel that decide how early a full volume can report.
//!
//! | kernel | bound on dirty pages | ENOSPC at write(2) on a nearly full volume |
//! |---|---|---|
//! | 6.19 and later, 6.18.3, 6.12.64 and later of their series | yes | yes |
//! | 6.2 and later | yes | no: reported by close(2), fsync(2) or `sfs-umount` |
//! | older | no: `/sys/class/bdi` has no `max_bytes` | no |

use std::fs;

/// First releases of stable series, and the first series, whose direct I/O leaves mappings coherent.
const COHERENT: [(u32, u32, u32); 2] = [(6, 12, 64), (6, 18, 3)];
const COHERENT_SERIES: (u32, u32) = (6, 19);

/// Returns whether a nearly full volume answers ENOSPC to write(2); prints the reason if not.
pub(crate) fn answers_each_write() -> bool {
    let release = release();
    let is_coherent = is_coherent(&release);
    if !is_coherent {
        println!("skipped: on Linux {release} a file on a nearly full volume has cached writes");
    }
    is_coherent
}

/// Returns whether the kernel bounds the dirty pages of one mount; prints the reason if not.
pub(crate) fn bounds_dirty_pages() -> bool {
    let devices = fs::read_dir("/sys/class/bdi").into_iter().flatten().flatten();
    let has_bound = devices.into_iter().any(|device| device.path().join("max_bytes").exists());
    if !has_bound {
        println!("skipped: Linux {} has no max_bytes in /sys/class/bdi", release());
    }
    has_bound
}

fn release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    release.trim().to_owned()
}

fn is_coherent(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    let in_series = |&(a, b, first): &(u32, u32, u32)| (major, minor) == (a, b) && patch >= first;
    (major, minor) >= COHERENT_SERIES || COHERENT.iter().any(in_series)
}

#[test]
fn releases_are_told_apart() {
    for release in ["6.12.64", "6.12.117+deb13-amd64", "6.18.3", "6.19.0", "7.3-rc7"] {
        assert!(is_coherent(release), "{release}");
    }
    for release in ["6.1.192", "6.12.63", "6.13.9", "6.18.2", "5.15.0-100-generic"] {
        assert!(!is_coherent(release), "{release}");
    }
}
