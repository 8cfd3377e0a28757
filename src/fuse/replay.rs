//! Executing recorded changes once more, after the daemon of a mount has died.
//!
//! The log has a prefix of the changes of names and attributes, and of some files data that is newer. Changes after the prefix are
//! executed again as they were, with the same times, and so with the same inode numbers. Of those before it only changes of data
//! are: in their order they lead to the same content, whatever part of it is there.
//!
//! The last change of the prefix is found by the time of its directory, as no two changes have the same time, and by the numbers of
//! inodes, as the log knows which one is the next.

use std::collections::{HashMap, HashSet};

use sfs_core::format::{FileKind, Inode};
use sfs_core::request::AttributeChanges;
use sfs_fuse::{Errno, FuseOperation, FuseRequest, InitFlags, Reply, SetattrArgs, WriteArgs};

use super::fuse_shell::{FuseShell, caller};
use super::reply_result::{OperationResult, Refusal, ReplyResult};
use crate::exit_error::ExitError;
use crate::file_clock;
use crate::survival::{Journal, RecordedRequest, Revival};

/// Change with its request.
type Recorded<'a> = (&'a FuseRequest<'a>, &'a RecordedRequest);

/// All changes of one inode together.
#[derive(Clone, Copy, Debug, Default)]
struct NodeChanges {
    /// Position after the last change for which the inode must be there.
    end: usize,
    /// Position after the last change that leaves the file empty, if any does.
    emptied: usize,
    /// `true` if the file gets a name.
    is_linked: bool,
}

impl FuseShell {
    /// Executes the changes of `revival` as far as they are not in the log. The reply to one that was not completed is given to
    /// `journal`.
    ///
    /// # Errors
    ///
    /// A change has another outcome than it had.
    pub(crate) fn replay(
        &self,
        revival: &Revival,
        flags: InitFlags,
        journal: &Journal,
    ) -> Result<(), ExitError> {
        let changes = revival.changes();
        let requests = changes.iter().map(|change| FuseRequest::decode(&change.message, flags));
        let requests = requests.collect::<Result<Vec<_>, _>>();
        let requests = requests.map_err(|_| diverged("a request is not one"))?;
        let recorded: Vec<Recorded<'_>> = requests.iter().zip(changes).collect();
        let next_ino = self.volume.next_inode_number().map_err(ExitError::mount)?;
        let in_log = recorded.iter().rposition(|of| self.is_in_log(*of, next_ino));
        let first_missing = in_log.map_or(0, |last| last + 1);
        let by_node = by_node(&recorded);
        let unread = |node: u64| self.is_unread(revival, &by_node, node);
        let unread: HashSet<u64> = by_node.keys().copied().filter(|node| unread(*node)).collect();
        let last = changes.len().wrapping_sub(1);
        for (at, &(request, change)) in recorded.iter().enumerate() {
            let _time = file_clock::fix(change.begun.now);
            let is_open = at == last && change.given.is_none();
            let is_done = !change.is_refused() || is_done_in_part((request, change));
            if at < first_missing {
                let emptied = by_node.get(&request.node).map_or(0, |of| of.emptied);
                if is_done && at + 1 >= emptied && !unread.contains(&request.node) {
                    self.repeat_data((request, change))?;
                }
                if is_open {
                    journal.complete(request, &self.outcome_in_log((request, change)));
                }
            } else if is_open {
                let result = self.finish((request, change));
                if !matches!(result, Ok(Reply::Parked(_))) {
                    journal.complete(request, &result);
                }
            } else if is_done {
                self.repeat((request, change))?;
            }
            // Nothing holds the space of a file longer than before.
            let is_last = |node: &u64| by_node.get(node).is_some_and(|of| of.end == at + 1);
            let ended: HashSet<u64> = change.nodes().filter(is_last).collect();
            ended.into_iter().for_each(|node| self.volume.forget(node, 1));
        }
        Ok(())
    }

    /// Returns whether the log has this change and all before it, as far as its directory or its new inode tells.
    fn is_in_log(&self, (request, change): Recorded<'_>, next_ino: u64) -> bool {
        if change.is_refused() {
            return false;
        }
        let directory = match &request.operation {
            FuseOperation::Tmpfile(_) => {
                return change.given.is_some_and(|given| given.node < next_ino);
            }
            FuseOperation::Create(_)
            | FuseOperation::Mknod { .. }
            | FuseOperation::Mkdir { .. }
            | FuseOperation::Symlink { .. }
                if change.given.is_some() =>
            {
                return change.given.is_some_and(|given| given.node < next_ino);
            }
            FuseOperation::Rename { new_parent, .. } => *new_parent,
            _ => request.node,
        };
        let Ok(inode) = self.volume.attributes(directory) else { return false };
        inode.kind() == FileKind::Directory && inode.ctime == change.begun.now
    }

    /// Returns whether nobody reads what inode `node` has: neither a name nor the kernel refers to it, or ever will.
    fn is_unread(&self, revival: &Revival, by_node: &HashMap<u64, NodeChanges>, node: u64) -> bool {
        let is_linked = by_node.get(&node).is_some_and(|of| of.is_linked);
        let has_name = self.volume.attributes(node).is_ok_and(|inode| inode.links > 0);
        !is_linked && !has_name && !revival.is_referred(node)
    }

    /// Executes a change as it was executed before.
    fn execute(&self, (request, change): Recorded<'_>) -> ReplyResult {
        let result = match &request.operation {
            // Its descriptor may be closed, and it was accepted.
            FuseOperation::Setattr(asked) => self.setattr_through(request, asked, true),
            FuseOperation::Fallocate { offset, len, mode, .. } => {
                let keeps = change.begun.keeps_privileges;
                let kills = !keeps && self.has_privileges(request.node).unwrap_or(false);
                self.allocate(request, (*offset, *len), *mode, kills)
            }
            _ => return self.pass(request, None, &mut []),
        };
        result.map_err(|refusal| self.code_of(request.node, &refusal))
    }

    /// Executes a change, and once more if it has no space before everything is in the log.
    fn execute_with_space(&self, recorded: Recorded<'_>) -> ReplyResult {
        let result = self.execute(recorded);
        if !is_full(&result) || recorded.1.is_refused() {
            return result;
        }
        let _ = self.volume.sync_all();
        self.execute(recorded)
    }

    /// Repeats a change that the log lacks.
    fn repeat(&self, (request, change): Recorded<'_>) -> Result<(), ExitError> {
        let result = self.execute_with_space((request, change));
        let (made, handle) = match &result {
            Ok(Reply::Entry(entry)) => (entry.node, 0),
            Ok(Reply::Created(entry, opened)) => (entry.node, opened.handle),
            Ok(Reply::Opened(opened)) => (0, opened.handle),
            _ => (0, 0),
        };
        let Some(given) = change.given else { return Ok(()) };
        if given.node != made {
            return Err(diverged("a change has another outcome than before"));
        }
        if let Err(code) = &result
            && !change.is_refused()
        {
            self.check_repeated(request, *code)?;
        }
        // Both are among those that were recorded.
        if made > 0 {
            self.volume.forget(made, 1);
        }
        if handle > 0 {
            self.handles.released(if made > 0 { made } else { request.node }, handle);
        }
        Ok(())
    }

    /// Returns an error if a change that was done fails with `code` now, and if that is no trace of later changes in the log.
    fn check_repeated(&self, request: &FuseRequest<'_>, code: Errno) -> Result<(), ExitError> {
        let is_expected = match &request.operation {
            // The attribute is there, or is not, as after a later change.
            FuseOperation::Setxattr { .. } | FuseOperation::Removexattr { .. } => {
                matches!(code.code(), libc::EEXIST | libc::ENODATA)
            }
            _ => false,
        };
        if is_expected || self.volume.attributes(request.node).is_err() {
            return Ok(());
        }
        Err(diverged(&format!(
            "inode {}: {}",
            request.node,
            std::io::Error::from_raw_os_error(code.code())
        )))
    }

    /// Executes a change that was begun, and may be in the log if no directory tells.
    fn finish(&self, (request, change): Recorded<'_>) -> ReplyResult {
        let (name, is_there) = match &request.operation {
            FuseOperation::Setxattr { name, value, .. } => (name, Some(*value)),
            FuseOperation::Removexattr { name } => (name, None),
            // It was not accepted yet, and its descriptor is still open.
            FuseOperation::Setattr(_) => return self.pass(request, None, &mut []),
            _ => return self.execute((request, change)),
        };
        let now = change.begun.now;
        let is_changed = self.volume.attributes(request.node).is_ok_and(|inode| inode.ctime == now);
        let present = self.volume.xattr(request.node, name).ok();
        match is_changed && present.as_deref() == is_there {
            true => Ok(Reply::Done),
            false => self.pass(request, None, &mut []),
        }
    }

    /// Returns the reply to a change that is in the log.
    fn outcome_in_log(&self, (request, change): Recorded<'_>) -> ReplyResult {
        let (parent, name) = match &request.operation {
            FuseOperation::Mknod { name, .. }
            | FuseOperation::Mkdir { name, .. }
            | FuseOperation::Symlink { name, .. }
            | FuseOperation::Link { name, .. } => (request.node, *name),
            FuseOperation::Create(create) => (request.node, create.name),
            // Attributes of a directory are set to the same values once more.
            FuseOperation::Setattr(_) => return self.execute((request, change)),
            _ => return Ok(Reply::Done),
        };
        let found = self.volume.lookup(parent, name).map_err(|_| Errno::new(libc::EIO))?;
        let entry = self.entry(&found);
        Ok(match &request.operation {
            FuseOperation::Create(create) => {
                Reply::Created(entry, self.opened(found.ino, create.open_flags, true))
            }
            _ => Reply::Entry(entry),
        })
    }

    /// Repeats what a change does to data. Names and attributes are in the log, with later changes of them.
    fn repeat_data(&self, (request, change): Recorded<'_>) -> Result<(), ExitError> {
        let Ok(before) = self.volume.attributes(request.node) else { return Ok(()) };
        let mut outcome = self.change_data(request, &before);
        if is_full_refusal(&outcome) && !change.is_refused() {
            let _ = self.volume.sync_all();
            outcome = self.change_data(request, &before);
        }
        match outcome {
            Some(Err(refusal)) if !change.is_refused() => {
                self.check_repeated(request, self.code_of(request.node, &refusal))
            }
            _ => Ok(()),
        }
    }

    /// Changes data as `request` asks for, and nothing else of the file, which has the attributes `before`.
    fn change_data(&self, request: &FuseRequest<'_>, before: &Inode) -> Option<OperationResult> {
        let set_size = |size: u64| {
            let (mtime, ctime) = (Some(before.mtime), Some(before.ctime));
            let only_size = AttributeChanges {
                size: Some(size),
                mtime,
                ctime,
                keep_times: true,
                through_open: true,
                keep_capability: true,
                ..AttributeChanges::default()
            };
            self.volume.set_attributes(request.node, &only_size, &caller(request))?;
            Ok(Reply::Done)
        };
        Some(match &request.operation {
            FuseOperation::Write(write) => {
                let only_data = WriteArgs { kill_privileges: false, open_flags: 0, ..*write };
                self.write(request, &only_data)
            }
            FuseOperation::Setattr(SetattrArgs { size: Some(size), .. }) => set_size(*size),
            FuseOperation::Open { .. } => set_size(0),
            FuseOperation::Fallocate { offset, len, mode, .. } => {
                self.allocate(request, (*offset, *len), *mode, false)
            }
            _ => return None,
        })
    }

    fn code_of(&self, node: u64, refusal: &Refusal) -> Errno {
        match refusal {
            Refusal::Failed(error) => self.errno(node, error),
            Refusal::Errno(code) => Errno::new(*code),
        }
    }
}

/// Returns what `recorded` tells of each inode.
fn by_node(recorded: &[Recorded<'_>]) -> HashMap<u64, NodeChanges> {
    let mut found: HashMap<u64, NodeChanges> = HashMap::new();
    for (at, (request, change)) in recorded.iter().enumerate() {
        for node in change.nodes() {
            found.entry(node).or_default().end = at + 1;
        }
        let is_done = change.given.is_some() && !change.is_refused();
        match &request.operation {
            FuseOperation::Link { target, .. } => {
                found.entry(*target).or_default().is_linked = true;
            }
            FuseOperation::Setattr(SetattrArgs { size: Some(0), .. })
            | FuseOperation::Open { .. }
                if is_done =>
            {
                found.entry(request.node).or_default().emptied = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// Returns whether a refused change has done what there was space for: only data of the kernel's cache is written block by block.
fn is_done_in_part((request, change): Recorded<'_>) -> bool {
    let is_from_cache =
        matches!(&request.operation, FuseOperation::Write(write) if write.from_cache);
    is_from_cache && change.refusal == Some(libc::ENOSPC)
}

fn is_full(result: &ReplyResult) -> bool {
    matches!(result, Err(code) if code.code() == libc::ENOSPC)
}

fn is_full_refusal(outcome: &Option<OperationResult>) -> bool {
    matches!(outcome, Some(Err(Refusal::Failed(sfs_core::Error::NoSpace))))
}

fn diverged(reason: &str) -> ExitError {
    ExitError::system(format_args!(
        "the records of the daemon that has died do not fit the volume: {reason}"
    ))
}
