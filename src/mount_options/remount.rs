//! Options of a remount: flags of the kernel may change, options of the volume may not.

use nix::mount::MsFlags;
use sfs_core::request::{AccessTimePolicy, VolumeOptions};
use sfs_system::mountinfo::MountRecord;

use super::{MountOptions, foreign};
use crate::exit_error::ExitError;

/// Option that asks for a change of an existing mount.
const REMOUNT: &str = "remount";

/// Options between the daemon and the kernel; see [`is_kernels`].
const KERNELS: [&str; 8] = [
    "fd",
    "rootmode",
    "user_id",
    "group_id",
    "default_permissions",
    "allow_other",
    "blksize",
    "max_read",
];

impl MountOptions {
    /// Returns these options after a remount with `list`, which may include options of the kernel, as mount(8)
    /// merges them. An option that needs a new mount is refused by its name.
    pub(crate) fn changed_by(&self, list: &str) -> Result<Self, ExitError> {
        let mut options = self.clone();
        for option in list.split(',').filter(|option| !is_kernels(option)) {
            if !options.take(option.trim())? {
                return Err(foreign::refusal(option.trim()));
            }
            let kernels = Self {
                volume: VolumeOptions {
                    read_only: options.volume.read_only,
                    access_times: options.volume.access_times,
                    ..self.volume.clone()
                },
                flags: options.flags,
                ..self.clone()
            };
            if options != kernels {
                return Err(ExitError::mount(format_args!(
                    "'{option}' cannot be changed while mounted; unmount and mount again"
                )));
            }
        }
        options.flags.set(MsFlags::MS_RDONLY, options.volume.read_only);
        Ok(options)
    }
}

/// Returns whether one of the lists asks for a remount.
pub fn asks_for_remount<'a>(lists: impl IntoIterator<Item = &'a str>) -> bool {
    lists.into_iter().flat_map(|list| list.split(',')).any(|option| option.trim() == REMOUNT)
}

/// Returns the known options of a comma list.
pub(crate) fn known(list: &str) -> String {
    let is_known = |option: &&str| {
        // An option that is known but has a wrong value is refused by the daemon.
        is_kernels(option) || !matches!(MountOptions::default().take(option.trim()), Ok(false))
    };
    list.split(',').filter(is_known).collect::<Vec<_>>().join(",")
}

/// Returns the kernel's flags of `mount` after a remount with `list`.
pub(crate) fn flags_after(mount: &MountRecord, list: &str) -> MsFlags {
    let mut options = MountOptions { flags: MsFlags::empty(), ..MountOptions::default() };
    let now = [mount.options.as_str(), mount.super_options.as_str()];
    for option in now.into_iter().chain([list]).flat_map(|list| list.split(',')) {
        options.take_flag(option.trim());
    }
    options.flags.set(MsFlags::MS_RDONLY, options.volume.read_only);
    options.flags
}

/// Returns the reading that moves times of access, by the options that the kernel shows for a mount.
pub(crate) fn access_times_of(mount: &MountRecord) -> AccessTimePolicy {
    match mount.options.split(',').find(|option| matches!(*option, "noatime" | "relatime")) {
        Some("noatime") => AccessTimePolicy::Never,
        Some(_) => AccessTimePolicy::Relative,
        None => AccessTimePolicy::Strict,
    }
}

/// Returns whether `option` is `remount`, or an option between the daemon of a FUSE mount and the
/// kernel.
fn is_kernels(option: &str) -> bool {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    option == REMOUNT || KERNELS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remount_changes_only_flags_of_the_kernel() {
        let options = MountOptions::parse(["cache=8M,nowriteback"], false).expect("known options");
        let merged =
            "ro,nosuid,noatime,remount,user_id=0,group_id=0,default_permissions,allow_other";
        let changed = options.changed_by(merged).expect("the options are the kernel's");
        assert!(changed.volume.read_only && changed.flags.contains(MsFlags::MS_RDONLY));
        // /etc/fstab repeats options of the mount.
        options.changed_by("remount,cache=8M,writeback=off,rw").expect("nothing is changed");
        for (list, named) in [
            ("remount,ro,cache=9M", "'cache=9M'"),
            ("remount,writeback", "'writeback'"),
            ("remount,sync", "'sync'"),
            ("remount,nodiscard", "'nodiscard'"),
            ("remount,noacl", "'noacl'"),
            ("remount,nosandbox", "'nosandbox'"),
            ("remount,ro,follow=5", "'follow=5'"),
            ("remount,errors=remount-ro", "'errors=remount-ro'"),
        ] {
            let failure = options.changed_by(list).expect_err(list);
            assert!(failure.to_string().contains(named), "{failure}");
            assert_eq!(failure.status, 32);
        }
        assert_eq!(options.changed_by("remount,frobnicate").expect_err("unknown").status, 1);
        assert_eq!(known("remount,frobnicate,ro,cache=no"), "remount,ro,cache=no");
    }
}
