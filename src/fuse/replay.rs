//! Executing recorded changes once more, after the daemon of a mount has died.
//!
//! The log has a prefix of the changes of names and attributes, and of some files data that is newer. Changes after the prefix are
//! executed again as they were, with the same times, and so with the same inode numbers. Of those before it only changes of data
//! are: in their order they lead to the same content, whatever part of it is there. What a finished sync covers is left as it is: the
//! log has it, and older content must not be there again, not even for a while.
//!
//! The last change of the prefix is found by the time of its directory, as no two changes have the same time, and by the numbers of
//! inodes, as the log knows which one is the next.

use std::collections::{HashMap, HashSet};

use sfs_core::Error;
use sfs_core::format::FileKind;
use sfs_fuse::{Errno, FuseOperation, FuseRequest, InitFlags, Reply, SetattrArgs, WriteArgs};

use super::fuse_shell::FuseShell;
use super::name_operations::kills_privileges;
use super::repeated_content::{Contents, Recorded, grows, is_done, size_set};
use super::reply_result::{Refusal, ReplyResult};
use crate::exit_error::ExitError;
use crate::file_clock;
use crate::survival::{Journal, Revival};

/// All changes of one inode together.
#[derive(Clone, Copy, Debug, Default)]
struct NodeChanges {
    /// Position after the last change for which the inode must be there.
    end: usize,
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
        self.replay_sparing(revival, flags, journal, false)
    }

    /// Does the same, as on a volume that is nearly full with `always_spares`.
    pub(super) fn replay_sparing(
        &self,
        revival: &Revival,
        flags: InitFlags,
        journal: &Journal,
        always_spares: bool,
    ) -> Result<(), ExitError> {
        let changes = revival.changes();
        let requests = changes.iter().map(|change| FuseRequest::decode(&change.message, flags));
        let requests = requests.collect::<Result<Vec<_>, _>>();
        let requests = requests.map_err(|_| diverged("a request is not one"))?;
        let recorded: Vec<Recorded<'_>> = requests.iter().zip(changes).collect();
        let next_ino = self.volume.next_inode_number().map_err(ExitError::mount)?;
        let in_log = recorded.iter().rposition(|of| self.is_in_log(*of, next_ino));
        let first_missing = in_log.map_or(0, |last| last + 1).max(revival.synced_changes());
        let by_node = by_node(&recorded);
        let unread = |node: u64| self.is_unread(revival, &by_node, node);
        let unread: HashSet<u64> = by_node.keys().copied().filter(|node| unread(*node)).collect();
        let free = self.volume.certain_space().available_bytes();
        let mut contents = Contents::new(&recorded, free);
        contents.is_sparing |= always_spares;
        let last = changes.len().wrapping_sub(1);
        let is_open_in_log = recorded.last().is_some_and(|of| self.is_attribute_in_log(*of));
        for (at, &of @ (request, change)) in recorded.iter().enumerate() {
            let is_open = at == last && change.given.is_none();
            if is_open {
                self.repeat_rest(&mut contents, &recorded, revival)?;
            }
            let _time = file_clock::fix(change.begun.now);
            // Nobody reads it, or ever did if it is not there yet.
            let is_unread = unread.contains(&request.node) && request.node < next_ino;
            let is_done = is_done(of) || is_done_in_part(of);
            if at < first_missing {
                if (is_done || is_open) && !is_unread {
                    self.repeat_data(&mut contents, (at, of))?;
                }
                if is_open {
                    journal.complete(request, &self.outcome_in_log(of));
                }
            } else if is_open && !revival.sends_again {
                // The program has got this error, and the kernel knows nothing of the change.
                let ended: ReplyResult = Err(Errno::new(libc::ECONNABORTED));
                journal.complete(request, &ended);
            } else if is_open {
                let result = self.finish(of, is_open_in_log);
                if !matches!(result, Ok(Reply::Parked(_))) {
                    journal.complete(request, &result);
                }
            } else if is_done {
                self.repeat(&mut contents, (at, of), is_unread)?;
            }
            // Nothing holds the space of a file longer than before.
            let is_last = |node: &u64| by_node.get(node).is_some_and(|of| of.end == at + 1);
            let ended: HashSet<u64> = change.nodes().filter(is_last).collect();
            ended.into_iter().for_each(|node| self.volume.forget(node, 1));
        }
        self.notify_again(&recorded);
        self.repeat_rest(&mut contents, &recorded, revival)
    }

    /// Repeats what there was no space for. Everything else is as it was then.
    fn repeat_rest(
        &self,
        contents: &mut Contents,
        recorded: &[Recorded<'_>],
        revival: &Revival,
    ) -> Result<(), ExitError> {
        let has_name = |node| self.volume.attributes(node).is_ok_and(|inode| inode.links > 0);
        let is_unread = |node: u64| !has_name(node) && !revival.is_referred(node);
        let repeated = self.repeat_left(contents, recorded, is_unread);
        repeated.map_err(|refusal| diverged(&self.code_of(0, &refusal).to_string()))
    }

    /// Returns whether the log has this change and all before it, as far as its directory or its new inode tells.
    fn is_in_log(&self, (request, change): Recorded<'_>, next_ino: u64) -> bool {
        if change.is_refused() {
            return false;
        }
        if change.begun.before.new_ino > 0 {
            return change.begun.before.new_ino < next_ino;
        }
        let directory = match &request.operation {
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
            FuseOperation::Setattr(asked) => {
                // A truncation to the length that the file has would give reservations back.
                let is_there = change.is_content_synced || self.is_as_long((request, change));
                let size = asked.size.filter(|_| !is_there);
                // Without its length it looks like a request to clear privileges.
                let kills = kills_privileges(asked);
                self.setattr_through(request, &SetattrArgs { size, ..*asked }, (true, kills))
            }
            // It has only emptied the file.
            FuseOperation::Open { kill_privileges, .. } if change.is_content_synced => {
                let cleared = self.clear_privileges_again(request, *kill_privileges);
                cleared.map(|()| Reply::Done)
            }
            // It was accepted, whatever the file had before.
            FuseOperation::Setxattr { name, value, clear_sgid, .. } if change.given.is_some() => {
                self.setxattr(request, name, value, 0, *clear_sgid)
            }
            FuseOperation::Fallocate { offset, len, mode, .. } => {
                let keeps = change.begun.before.keeps_privileges;
                let kills = !keeps && self.has_privileges(request.node).unwrap_or(false);
                self.allocate(request, (*offset, *len), *mode, kills)
            }
            _ => return self.pass(request, None, &mut []),
        };
        result.map_err(|refusal| self.code_of(request.node, &refusal))
    }

    /// Returns whether a change has made its file longer, and the file is so long, or longer.
    fn is_as_long(&self, of @ (request, _): Recorded<'_>) -> bool {
        let is_long = |size| self.volume.attributes(request.node).is_ok_and(|now| now.size >= size);
        grows(of) && size_set(of).is_some_and(is_long)
    }

    /// Executes a change, and once more if it has no space before everything is in the log.
    fn execute_with_space(&self, recorded: Recorded<'_>) -> ReplyResult {
        let result = self.execute(recorded);
        if !is_full(&result) || recorded.1.is_refused() {
            return result;
        }
        let _ = self.volume.write_for_handover();
        self.execute(recorded)
    }

    /// Executes a change that was done, so that there must be space for it.
    fn execute_again(&self, recorded: Recorded<'_>) -> ReplyResult {
        let result = self.execute_with_space(recorded);
        if !is_full(&result) || recorded.1.is_refused() {
            return result;
        }
        self.volume.with_withheld_space(|| self.execute(recorded))
    }

    /// Repeats change `at`, which the log lacks.
    fn repeat(
        &self,
        contents: &mut Contents,
        (at, recorded): (usize, Recorded<'_>),
        is_unread: bool,
    ) -> Result<(), ExitError> {
        let (request, change) = recorded;
        let kills = match &request.operation {
            _ if is_unread && has_only_content(request) => return Ok(()),
            FuseOperation::Write(write) => write.kill_privileges,
            FuseOperation::Fallocate { .. } => {
                !change.begun.before.keeps_privileges
                    && self.has_privileges(request.node).unwrap_or(false)
            }
            _ => return self.repeat_whole(contents, (at, recorded)),
        };
        let repeated = self.repeat_content(contents, (at, recorded), kills);
        self.check_outcome(contents, (at, request), repeated)
    }

    fn repeat_whole(
        &self,
        contents: &Contents,
        (at, (request, change)): (usize, Recorded<'_>),
    ) -> Result<(), ExitError> {
        let result = self.execute_again((request, change));
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
            self.check_repeated(contents, (at, request), *code)?;
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
    fn check_repeated(
        &self,
        contents: &Contents,
        (at, request): (usize, &FuseRequest<'_>),
        code: Errno,
    ) -> Result<(), ExitError> {
        let is_expected = match &request.operation {
            FuseOperation::Removexattr { .. } => code.code() == libc::ENODATA,
            // The attributes of the file are those after later changes, and there is no room for this one beside them.
            FuseOperation::Setxattr { .. } => {
                code.code() == libc::ENOSPC && contents.is_attribute_changed_later(at)
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

    /// Executes a change that was begun. `is_in_log` tells that the log had it, before others were repeated over it.
    fn finish(&self, recorded: Recorded<'_>, is_in_log: bool) -> ReplyResult {
        let (request, change) = recorded;
        match &request.operation {
            FuseOperation::Setxattr { name, value, clear_sgid, .. } if is_in_log => {
                let set = self.setxattr(request, name, value, 0, *clear_sgid);
                set.map_err(|refusal| self.code_of(request.node, &refusal))
            }
            FuseOperation::Removexattr { name }
                if is_in_log && self.volume.xattr(request.node, name).is_err() =>
            {
                self.touch(request, change.begun.now);
                Ok(Reply::Done)
            }
            // It was not accepted yet, and its descriptor is still open.
            FuseOperation::Setxattr { .. }
            | FuseOperation::Removexattr { .. }
            | FuseOperation::Setattr(_) => self.pass(request, None, &mut []),
            FuseOperation::Write(write) => self.finish_write(request, write),
            _ => self.execute_with_space(recorded),
        }
    }

    /// Returns whether the log has a change of an attribute of a file, of which no directory tells.
    fn is_attribute_in_log(&self, (request, change): Recorded<'_>) -> bool {
        let (name, is_there) = match &request.operation {
            FuseOperation::Setxattr { name, value, .. } => (name, Some(*value)),
            FuseOperation::Removexattr { name } => (name, None),
            _ => return false,
        };
        let now = change.begun.now;
        let is_changed = self.volume.attributes(request.node).is_ok_and(|inode| inode.ctime == now);
        is_changed && self.volume.xattr(request.node, name).ok().as_deref() == is_there
    }

    /// Executes a write that was begun. The program gets an error only for what does not fit once everything else is in the log.
    fn finish_write(&self, request: &FuseRequest<'_>, write: &WriteArgs<'_>) -> ReplyResult {
        let first = WriteArgs { open_flags: 0, from_cache: false, ..*write };
        if let Err(Refusal::Failed(Error::NoSpace)) = self.write(request, &first) {
            let _ = self.volume.write_for_handover();
        }
        self.pass(request, None, &mut [])
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
            // Nobody refers to the file, which is deleted: another one is made.
            FuseOperation::Tmpfile(_) => return self.execute_with_space((request, change)),
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

    /// Repeats what change `at` does to data. Names and attributes are in the log, with later changes of them.
    fn repeat_data(
        &self,
        contents: &mut Contents,
        (at, recorded): (usize, Recorded<'_>),
    ) -> Result<(), ExitError> {
        let request = recorded.0;
        // The log has the truncation, as metadata, and perhaps newer content: the file must not be empty again.
        if contents.is_emptied(at, request.node) {
            return Ok(());
        }
        let repeated = match size_set(recorded) {
            Some(_) if self.is_as_long(recorded) => Ok(()),
            Some(size) => self.repeat_truncation(request, size),
            None => self.repeat_content(contents, (at, recorded), false),
        };
        self.check_outcome(contents, (at, request), repeated)
    }

    fn check_outcome(
        &self,
        contents: &Contents,
        (at, request): (usize, &FuseRequest<'_>),
        outcome: Result<(), Refusal>,
    ) -> Result<(), ExitError> {
        outcome.or_else(|refusal| {
            self.check_repeated(contents, (at, request), self.code_of(request.node, &refusal))
        })
    }

    /// Returns the number of the error that a refusal is for the program.
    pub(super) fn code_of(&self, node: u64, refusal: &Refusal) -> Errno {
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
        if let FuseOperation::Link { target, .. } = &request.operation {
            found.entry(*target).or_default().is_linked = true;
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

/// Returns whether a change is one of content, and of nothing else that is read.
fn has_only_content(request: &FuseRequest<'_>) -> bool {
    matches!(request.operation, FuseOperation::Write(_) | FuseOperation::Fallocate { .. })
}

fn diverged(reason: &str) -> ExitError {
    ExitError::system(format_args!(
        "the records of the daemon that has died do not fit the volume: {reason}"
    ))
}
