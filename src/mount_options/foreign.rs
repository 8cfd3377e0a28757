//! Options of other programs and filesystems in a list for SFS: which are dropped, and why others are refused.

use super::table;
use crate::exit_error::ExitError;

/// Options that mount(8) leaves in the list for itself, or that describe the fixed behaviour of
/// SFS.
const DROPPED: [&str; 29] = [
    "auto",
    "noauto",
    "defaults",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "norelatime",
    "loud",
    "silent",
    "loop",
    // SFS always has extended attributes of users, and never quotas.
    "user_xattr",
    "noquota",
    // Flushes are always sent, and allocation always waits for write-back.
    "barrier",
    "barrier=1",
    "delalloc",
    // Metadata never becomes durable before its data.
    "data=ordered",
    // `/proc/mounts` shows these for every mount, and fstab lines are copied from there.
    "default_permissions",
    "rootmode=40000",
    "user_id=0",
    "group_id=0",
    "seclabel",
    "inode64",
];

/// Names of options that are dropped with any value.
const DROPPED_NAMES: [&str; 5] = ["comment", "uhelper", "helper", "loop", "blksize"];

/// Options of other filesystems, and the reason why each is refused.
const REFUSED: [(&str, &str); 11] = [
    ("nouser_xattr", "SFS always has extended attributes; leave it out"),
    ("nobarrier", "SFS always flushes the device's cache; leave it out"),
    ("barrier=0", "SFS always flushes the device's cache; leave it out"),
    ("quota", NO_QUOTAS),
    ("usrquota", NO_QUOTAS),
    ("grpquota", NO_QUOTAS),
    ("prjquota", NO_QUOTAS),
    ("data=journal", "SFS writes all data to its log; leave it out"),
    ("data=writeback", "SFS always orders data before metadata; leave it out"),
    ("compress", "SFS does not compress; leave it out"),
    ("subvol", "SFS has no subvolumes; leave it out"),
];

const NO_QUOTAS: &str = "SFS has no quotas; leave it out";

/// Names of options that a list for SFS may have besides those of the table, for suggestions.
const KNOWN_MORE: [&str; 14] = [
    "suid",
    "dev",
    "exec",
    "symfollow",
    "atime",
    "diratime",
    "nodiratime",
    "lazytime",
    "async",
    "nofail",
    "noauto",
    "defaults",
    "users",
    "user_xattr",
];

/// Maximum number of letters in which a name may differ from a suggested one.
const LETTERS_MAX: usize = 2;

/// Returns whether `option`, whose part before `=` is `name`, has no effect on a mount of SFS.
pub(super) fn is_dropped(option: &str, name: &str) -> bool {
    option.is_empty()
        || DROPPED.contains(&option)
        || DROPPED_NAMES.contains(&name) && option != name
        || name.starts_with("x-")
        || name.starts_with("X-")
}

/// Returns the error for an option that is not known: with the reason why it is refused, the name that was probably
/// meant, or all options.
pub(super) fn refusal(option: &str) -> ExitError {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    let of_other = REFUSED.iter().find(|(other, _)| *other == option || *other == name);
    if let Some((_, reason)) = of_other {
        return ExitError::usage(format_args!("mount option '{option}': {reason}"));
    }
    match nearest(name) {
        Some(meant) => ExitError::usage(format_args!(
            "unknown mount option '{option}'; did you mean '{meant}'?"
        )),
        None => ExitError::usage(format_args!(
            "unknown mount option '{option}'; besides the options of mount(8), SFS has {}",
            table::own_forms()
        )),
    }
}

/// Returns the known name that differs least from `name`, if it differs little.
fn nearest(name: &str) -> Option<&'static str> {
    let difference = |known: &&str| strsim::damerau_levenshtein(known, name);
    let nearest = known().min_by_key(difference)?;
    let letters = difference(&nearest);
    (letters > 0 && letters <= LETTERS_MAX && letters * 3 <= name.len()).then_some(nearest)
}

/// Returns the names of all options that may be suggested.
fn known() -> impl Iterator<Item = &'static str> {
    let of_table = table::TABLE.iter().flat_map(table::MountOption::names);
    of_table.chain(KNOWN_MORE)
}

#[cfg(test)]
mod tests {
    use super::super::MountOptions;
    use super::*;

    fn refused(option: &str) -> String {
        MountOptions::parse([option], false).expect_err(option).to_string()
    }

    #[test]
    fn a_misspelled_option_has_a_suggestion() {
        for (option, meant) in [
            ("noatmie", "'noatime'"),
            ("wirte_buffer=8M", "'write_buffer'"),
            ("discrad", "'discard'"),
            ("nosuit", "'nosuid'"),
            ("error=continue", "'errors'"),
        ] {
            let line = refused(option);
            assert!(line.ends_with(&format!("did you mean {meant}?")), "{line}");
        }
        for option in ["frobnicate", "x", "r", "ab"] {
            assert!(!refused(option).contains("did you mean"), "{option}");
        }
        let is_known = |name: &&str| {
            *name == "remount"
                || !matches!(MountOptions::default().take(name), Ok(false))
                || !matches!(MountOptions::default().take(&format!("{name}=")), Ok(false))
        };
        assert!(known().all(|name| is_known(&name)), "a suggestion is unknown itself");
    }

    #[test]
    fn options_of_other_filesystems_are_dropped_or_explained() {
        let shown =
            "rw,nosuid,relatime,user_id=0,group_id=0,default_permissions,allow_other,blksize=4096";
        let fstab = "defaults,user_xattr,noacl,barrier=1,data=ordered,uhelper=sfs,loop=/dev/loop0";
        for list in [shown, fstab, "users,noowner,nogroup,inode64,seclabel"] {
            MountOptions::parse([list], false).expect("the options are dropped or known");
        }
        assert!(refused("usrquota").contains("no quotas"));
        assert!(refused("compress=zstd").contains("does not compress"));
    }
}
