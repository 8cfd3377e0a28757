//! `/dev/fuse` and io_uring by our own hand: sfs-fuse.
//!
//! Owns: what sfs-fuse is told at the start.
//! Promises: the shell knows what was agreed on before the first request.
//! Never: looks into a request.

use std::fs::File;
use std::io;

use sfs_fuse::{Config, NoRings, Session};

use super::ATTRIBUTES_ONLY;
use crate::fuse::{BACKGROUND_MAX, Shell, WRITE_MAX};

pub(crate) struct Serving {
    session: Session,
    shell: Shell,
}

impl Serving {
    pub(super) fn open(
        door: File,
        mut shell: Shell,
        threads: usize,
        rings: bool,
    ) -> io::Result<Self> {
        let config = Config {
            flags: shell.wished(),
            async_dio: shell.async_dio,
            max_write: WRITE_MAX,
            max_background: BACKGROUND_MAX,
            congestion_threshold: BACKGROUND_MAX / 4 * 3,
            threads,
            rings,
            ..Config::default()
        };
        let session = Session::new(door.into(), &config)?;
        shell.agree(session.agreed().flags);
        let notifier = session.notifier();
        shell.notify_by(Box::new(move |directory| notifier.directory_changed(directory)));
        Ok(Self { session, shell })
    }

    /// How many rings there are, or why there are none.
    pub(super) fn rings(&self) -> Result<usize, &NoRings> {
        self.session.rings()
    }

    pub(super) fn run(self, lost: impl Fn(&io::Error) + Sync) -> io::Result<()> {
        let (notifier, notices) = (self.session.notifier(), self.shell.notices());
        super::notifying(
            &notices,
            |ino| notifier.invalidate_inode(ino, ATTRIBUTES_ONLY, 0),
            || self.session.run(|request, room| self.shell.answer(request, room), lost),
        )
    }
}
