//! The filesystems that this machine can make and mount.

use sfs_lab::host::Filesystem;
use sfs_mkfs::output;

/// Returns the filesystems whose programs are installed. Reports the others on standard error.
pub(crate) fn installed(filesystems: impl IntoIterator<Item = Filesystem>) -> Vec<Filesystem> {
    let is_installed = |filesystem: &Filesystem| {
        let missing = filesystem.missing();
        if let Some(program) = missing {
            let name = filesystem.name();
            output::complain(format_args!("skipped: {name}: {program} is not installed"));
        }
        missing.is_none()
    };
    filesystems.into_iter().filter(is_installed).collect()
}
