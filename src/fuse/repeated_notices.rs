//! Notifications that a daemon may have left to the next one: it may have died between the record of a change and the notification.

use std::collections::HashSet;

use sfs_core::format::FileKind;
use sfs_fuse::FuseOperation;

use super::fuse_shell::FuseShell;
use super::repeated_content::Recorded;

impl FuseShell {
    /// Notifies the kernel of the directories of all recorded changes. One that it does not know is no error.
    pub(super) fn notify_again(&self, recorded: &[Recorded<'_>]) {
        let of_change = |(request, _): &Recorded<'_>| match &request.operation {
            FuseOperation::Rename { new_parent, .. } => [request.node, *new_parent],
            _ => [request.node; 2],
        };
        let nodes: HashSet<u64> = recorded.iter().flat_map(of_change).collect();
        for ino in nodes {
            let inode = self.volume.attributes(ino);
            if inode.is_ok_and(|inode| inode.kind() == FileKind::Directory) {
                self.attributes_changed(ino);
            }
        }
    }
}
