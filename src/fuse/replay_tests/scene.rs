//! A mount whose requests are chosen one by one.

use super::*;

/// Mount whose requests are chosen one by one.
pub(super) struct Scene {
    pub(super) device: Arc<RamDevice>,
    pub(super) shell: FuseShell,
    pub(super) journal: Arc<Journal>,
    pub(super) unique: u64,
}

impl Scene {
    pub(super) fn new() -> Self {
        let device = new_device();
        let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("it opens");
        let mut shell = shell(volume);
        let journal =
            survival::begin(survival::Areas::new().expect("memory"), parts_of(&shell), "device");
        shell.set_journal(journal.clone());
        Self { device, shell, journal, unique: 0 }
    }

    pub(super) fn message(&mut self, kind: (u32, u64), parts: &[&[u8]]) -> Vec<u8> {
        self.unique += 2;
        message(self.unique, kind, parts)
    }

    pub(super) fn ask(&mut self, kind: (u32, u64), parts: &[&[u8]]) -> ReplyResult {
        let bytes = self.message(kind, parts);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        self.shell.answer(&request, &mut [])
    }

    /// Makes a file, and returns its inode and its handle.
    pub(super) fn make(&mut self, opcode: u32, name: &str, mode: u32) -> (u64, u64) {
        let name = format!("{name}\0");
        let made = self.ask((opcode, ROOT_INO), &[&words([2, mode, 0, 0]), name.as_bytes()]);
        let Ok(Reply::Created(entry, opened)) = made else { panic!("it is made") };
        (entry.node, opened.handle)
    }

    pub(super) fn forget(&mut self, node: u64, count: u64) {
        let _ = self.ask((FORGET, node), &[&longs([count])]);
        self.work();
    }

    pub(super) fn release(&mut self, node: u64, handle: u64) {
        self.ask((RELEASE, node), &[&longs([handle]), &words([0, 0]), &longs([0])]).expect("open");
    }

    pub(super) fn unlink(&mut self, name: &str) {
        let name = format!("{name}\0");
        self.ask((UNLINK, ROOT_INO), &[name.as_bytes()]).expect("the file is there");
    }

    pub(super) fn write(&mut self, node: u64, data: &[u8]) {
        for (at, piece) in data.chunks(1 << 17).enumerate() {
            let written = self.ask((WRITE, node), &[&write_head(at << 17, piece, 0), piece]);
            written.expect("there is room");
        }
    }

    pub(super) fn sync(&self) {
        self.shell.volume.sync_all().expect("RAM does not fail");
    }

    /// Writes everything to the log, so that no record is left.
    pub(super) fn settle(&self) {
        let commits = survival::CommitThread::start(self.journal.clone()).expect("a thread");
        // The kernel has all replies.
        (0..=self.unique).for_each(|unique| self.journal.replied(unique));
        self.journal.begin_unrecorded().commit();
        commits.stop();
    }

    pub(super) fn work(&self) {
        while self.shell.volume.work(NOW).expect("RAM does not fail") == Work::More {}
    }

    /// Makes a file that no record tells of, which leaves `left` bytes of the volume.
    pub(super) fn fill(&mut self, left: u64) {
        let bytes = self.message((CREATE, ROOT_INO), &[&words([2, 0o100_644, 0, 0]), b"filler\0"]);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        let made = self.shell.pass(&request, None, &mut []);
        let Ok(Reply::Created(entry, _)) = made else { panic!("it is made") };
        let piece = vec![1; 1 << 17];
        for at in 0.. {
            if self.shell.volume.certain_space().available_bytes() < left {
                break;
            }
            let head = write_head(at << 17, &piece, 0);
            let bytes = self.message((WRITE, entry.node), &[&head, &piece]);
            let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
            self.shell.pass(&request, None, &mut []).expect("there is room");
            self.sync();
        }
    }

    pub(super) fn die(self) -> FuseShell {
        let records = self.journal.descriptor().expect("a descriptor");
        let Self { device, shell, journal, .. } = self;
        drop((shell, journal));
        revive(device, records.into(), false).0
    }
}
