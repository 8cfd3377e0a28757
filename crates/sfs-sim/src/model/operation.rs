//! Operations on a volume, and the random choice of one with its arguments.
//!
//! The seed and the state of the reference decide the choice.

use sfs_core::format::{AccessListKind, FileKind, InodeFlags, Label, ROOT_INO, Timestamp};
use sfs_core::request::{
    AllocateMode, Allocation, AttributeChanges, RenameMode, WriteMode, XattrMode,
};

use super::access_lists;
use super::defragmentation::WriteMeanwhile;
use super::fixture::{FILE, after};
use super::random::SplitMix64;
use super::reference::{CAPABILITY, Reference, ReferenceNode};

/// Operation on a volume. The fields have the names of the arguments of the volume's methods.
#[expect(missing_docs, reason = "the methods of the volume document the arguments")]
#[derive(Clone, Debug)]
pub enum VolumeOperation {
    Make {
        parent: u64,
        name: Vec<u8>,
        mode: u32,
        rdev: u32,
    },
    MakeUnnamed {
        parent: u64,
        mode: u32,
    },
    Symlink {
        parent: u64,
        name: Vec<u8>,
        target: Vec<u8>,
    },
    Link {
        ino: u64,
        parent: u64,
        name: Vec<u8>,
    },
    Unlink {
        parent: u64,
        name: Vec<u8>,
    },
    RemoveDirectory {
        parent: u64,
        name: Vec<u8>,
    },
    Rename {
        from: (u64, Vec<u8>),
        to: (u64, Vec<u8>),
        mode: RenameMode,
    },
    Lookup {
        parent: u64,
        name: Vec<u8>,
    },
    Forget {
        ino: u64,
    },
    Write {
        ino: u64,
        offset: u64,
        bytes: Vec<u8>,
        mode: WriteMode,
    },
    Allocate {
        ino: u64,
        offset: u64,
        len: u64,
        allocation: Allocation,
    },
    Copy {
        from: (u64, u64),
        to: (u64, u64),
        len: u64,
        mode: WriteMode,
    },
    Read {
        ino: u64,
        offset: u64,
        len: usize,
    },
    Seek {
        ino: u64,
        offset: u64,
    },
    SetAttributes {
        ino: u64,
        changes: AttributeChanges,
    },
    SetXattr {
        ino: u64,
        name: Vec<u8>,
        value: Vec<u8>,
        mode: XattrMode,
    },
    RemoveXattr {
        ino: u64,
        name: Vec<u8>,
    },
    SetFlags {
        ino: u64,
        flags: InodeFlags,
    },
    SetAccessList {
        ino: u64,
        kind: AccessListKind,
        value: Vec<u8>,
        clear_sgid: bool,
    },
    List {
        ino: u64,
        seed: u64,
    },
    SyncFile {
        ino: u64,
    },
    SyncData {
        ino: u64,
    },
    /// Reading that may move the time of access.
    Access {
        ino: u64,
    },
    SyncAll,
    /// Change of the volume's label, durable when the operation returns.
    SetLabel {
        label: Label,
    },
    /// Growth of the volume by segments at its end, durable when the operation returns. Without room on the device the
    /// volume stays as it is.
    Grow {
        segments: u32,
        nonce: u64,
    },
    /// Loss of segments at the end of the volume, durable when the operation returns. A volume that is too full stays as it
    /// is.
    Shrink {
        segments: u32,
        nonce: u64,
    },
    /// A checkpoint that an administrator asks for.
    Checkpoint,
    /// A round of cleaning of at most so many segments that an administrator asks for.
    Clean {
        segments: u32,
    },
    /// Putting a file in order, with a write to one of its blocks between two steps.
    Defragment {
        ino: u64,
        meanwhile: Option<WriteMeanwhile>,
    },
    /// All background work that is due after `millis` milliseconds.
    Work {
        millis: u64,
    },
    /// One step of background work, which can leave work unfinished.
    Step,
    /// Remount, after a close or else after a sync without a close.
    Reopen {
        close: bool,
    },
}

impl VolumeOperation {
    /// Returns whether the operation may fail for lack of space, because the operation can create
    /// or extend files, names or attributes.
    pub fn takes_space(&self) -> bool {
        matches!(
            self,
            Self::Make { .. }
                | Self::MakeUnnamed { .. }
                | Self::Symlink { .. }
                | Self::Link { .. }
                | Self::Rename { .. }
                | Self::Write { .. }
                | Self::Allocate { .. }
                | Self::Copy { .. }
                | Self::SetAttributes { .. }
                | Self::SetXattr { .. }
                | Self::SetAccessList { .. }
        )
    }
}

/// Limits of a run, beyond which most operations free space or files.
pub struct RunLimits {
    /// Maximum size of all files in bytes.
    pub bytes: u64,
    /// Maximum number of files.
    pub files: usize,
    /// `true` if remounts are among the operations.
    pub reopens: bool,
}

/// Draws an operation from `seed`.
pub fn choose(seed: u64, reference: &Reference, limits: &RunLimits) -> VolumeOperation {
    let mut random = SplitMix64::new(seed);
    let mut chooser = Chooser { random: &mut random, reference };
    let bytes: u64 = reference.nodes.values().map(|node| bytes_of(node)).sum();
    let full = bytes > limits.bytes || reference.nodes.len() > limits.files;
    if full && !chooser.random.one_in(3) {
        return chooser.shrink(bytes > limits.bytes);
    }
    chooser.any(limits)
}

fn bytes_of(node: &ReferenceNode) -> u64 {
    let xattrs: usize = node.xattrs.values().map(|value| value.len() + 512).sum();
    node.content.blocks.len() as u64 * 4096 + node.target.len() as u64 + xattrs as u64 + 256
}

struct Chooser<'a> {
    random: &'a mut SplitMix64,
    reference: &'a Reference,
}

impl Chooser<'_> {
    fn any(&mut self, limits: &RunLimits) -> VolumeOperation {
        match self.random.below(100) {
            0..=11 => self.make(),
            12..=13 => VolumeOperation::Symlink {
                parent: self.directory(),
                name: self.name(),
                target: self.target(),
            },
            14..=16 => self.link(),
            17..=20 => self.unlink(),
            21..=22 => {
                let (parent, name) = self.entry();
                VolumeOperation::RemoveDirectory { parent, name }
            }
            23..=31 => self.rename(),
            32..=34 => {
                let (parent, name) = self.entry();
                VolumeOperation::Lookup { parent, name }
            }
            35..=38 => VolumeOperation::Forget { ino: self.ino() },
            39..=54 => self.write(),
            55..=58 => self.allocate(),
            59..=60 => self.copy(),
            61..=65 => {
                let ino = self.file();
                let offset = self.offset(ino);
                VolumeOperation::Read { ino, offset, len: self.random.below(70_000) as usize }
            }
            66..=67 => {
                let ino = self.file();
                VolumeOperation::Seek { ino, offset: self.offset(ino) }
            }
            68..=73 => self.set_attributes(),
            74..=75 => self.set_flags(),
            76..=78 => self.set_xattr(),
            79..=80 => self.set_access_list(),
            81 => self.remove_xattr(),
            82..=83 => VolumeOperation::List { ino: self.directory(), seed: self.random.draw() },
            84..=86 => VolumeOperation::SyncFile { ino: self.ino() },
            87 => VolumeOperation::SyncData { ino: self.ino() },
            88 => VolumeOperation::Access { ino: self.file() },
            89 => VolumeOperation::SyncAll,
            90 if self.random.one_in(2) => {
                let (segments, nonce) = (1 + self.random.below(3) as u32, self.random.draw());
                match self.random.one_in(3) {
                    true => VolumeOperation::Shrink { segments, nonce },
                    false => VolumeOperation::Grow { segments, nonce },
                }
            }
            90 => VolumeOperation::SetLabel { label: self.label() },
            98 if self.random.one_in(2) => match self.random.below(4) {
                0 => VolumeOperation::Checkpoint,
                segments => VolumeOperation::Clean { segments: segments as u32 },
            },
            91..=92 => self.defragment(),
            93..=98 => VolumeOperation::Work {
                millis: self.random.pick(&[0, 10, 300, 600, 6000, 310_000]),
            },
            _ if limits.reopens && self.random.one_in(4) => {
                VolumeOperation::Reopen { close: self.random.one_in(2) }
            }
            _ => VolumeOperation::SyncAll,
        }
    }

    fn defragment(&mut self) -> VolumeOperation {
        let ino = self.file();
        let size = self.reference.node(ino).map_or(0, |node| node.content.size);
        // The first windows; each has a step or two before its blocks are written.
        let block = self.random.below((size / 4096).clamp(1, 64));
        let writes = size >= 4096 && self.random.one_in(2);
        let meanwhile = writes.then(|| WriteMeanwhile {
            step: 1 + self.random.below(4) as u32,
            offset: block * 4096,
            bytes: self.random.bytes(4096),
        });
        VolumeOperation::Defragment { ino, meanwhile }
    }

    fn label(&mut self) -> Label {
        Label::new(&format!("volume {}", self.random.below(1 << 20))).expect("a label")
    }

    /// Draws an operation that frees space or files.
    fn shrink(&mut self, bytes: bool) -> VolumeOperation {
        let fixed = self.pick(ReferenceNode::is_fixed);
        if fixed != ROOT_INO && self.random.one_in(3) {
            return VolumeOperation::SetFlags { ino: fixed, flags: InodeFlags::NONE };
        }
        match self.random.below(4) {
            0 if bytes => {
                let size = self.random.below(5000);
                let changes = AttributeChanges { size: Some(size), ..Default::default() };
                VolumeOperation::SetAttributes { ino: self.file(), changes }
            }
            1 => VolumeOperation::Forget { ino: self.ino() },
            2 => self.remove_xattr(),
            _ => self.unlink(),
        }
    }

    fn pick(&mut self, fits: impl Fn(&ReferenceNode) -> bool) -> u64 {
        let all = self.reference.nodes.iter();
        let found: Vec<u64> = all.filter(|(_, node)| fits(node)).map(|(ino, _)| *ino).collect();
        if found.is_empty() { ROOT_INO } else { self.random.pick(&found) }
    }

    fn ino(&mut self) -> u64 {
        if self.random.one_in(100) { 1_000_000 } else { self.pick(|_| true) }
    }

    fn directory(&mut self) -> u64 {
        if self.random.one_in(60) { self.ino() } else { self.pick(|node| node.is_directory()) }
    }

    fn file(&mut self) -> u64 {
        if self.random.one_in(60) {
            return self.ino();
        }
        self.pick(|node| node.kind() == FileKind::Regular)
    }

    fn name(&mut self) -> Vec<u8> {
        match self.random.below(60) {
            0 => vec![b'n'; 255],
            1 => vec![b'n'; 256],
            2 => b"..".to_vec(),
            other => format!("name-{}", other % 12).into_bytes(),
        }
    }

    /// Draws a name, which mostly exists.
    fn entry(&mut self) -> (u64, Vec<u8>) {
        if self.random.one_in(12) {
            return (self.directory(), self.name());
        }
        let parent = self.pick(|node| !node.entries.is_empty());
        let entries = &self.reference.nodes[&parent].entries;
        if entries.is_empty() {
            return (parent, self.name());
        }
        let index = self.random.below(entries.len() as u64) as usize;
        (parent, entries.keys().nth(index).expect("an entry at the index").clone())
    }

    fn target(&mut self) -> Vec<u8> {
        let len = self.random.pick(&[1, 20, 1023, 1024, 1025, 2048, 3000, 4095, 4096, 0]);
        vec![b't'; len]
    }

    fn make(&mut self) -> VolumeOperation {
        let bits = self.random.draw() as u32;
        if self.random.one_in(12) {
            return VolumeOperation::MakeUnnamed { parent: self.directory(), mode: bits & 0o7777 };
        }
        let kind = match self.random.below(20) {
            0..=12 => FILE & 0o170_000,
            13..=16 => 0o040_000,
            17 => 0o010_000,
            18 => 0o020_000,
            _ => self.random.pick(&[0o060_000, 0o140_000, 0o120_000, 0]),
        };
        let (parent, name) = (self.directory(), self.name());
        VolumeOperation::Make { parent, name, mode: kind | bits & 0o7777, rdev: bits }
    }

    fn link(&mut self) -> VolumeOperation {
        let unnamed = self.reference.unnamed().filter(|_| self.random.one_in(2));
        let ino = unnamed.unwrap_or_else(|| self.ino());
        VolumeOperation::Link { ino, parent: self.directory(), name: self.name() }
    }

    fn unlink(&mut self) -> VolumeOperation {
        let (parent, name) = self.entry();
        let ino = self.reference.find(parent, &name).unwrap_or(ROOT_INO);
        let is_directory = self.reference.node(ino).is_ok_and(|node| node.is_directory());
        if is_directory && self.random.one_in(2) {
            return VolumeOperation::RemoveDirectory { parent, name };
        }
        VolumeOperation::Unlink { parent, name }
    }

    fn rename(&mut self) -> VolumeOperation {
        let mode = match self.random.below(8) {
            0 => RenameMode::NoReplace,
            1..=2 => RenameMode::Exchange,
            3 => RenameMode::Whiteout,
            4 => RenameMode::WhiteoutNoReplace,
            _ => RenameMode::Replace,
        };
        let to = if self.random.one_in(2) { self.entry() } else { (self.directory(), self.name()) };
        VolumeOperation::Rename { from: self.entry(), to, mode }
    }

    fn offset(&mut self, ino: u64) -> u64 {
        let size = self.reference.node(ino).map_or(0, |node| node.content.size);
        match self.random.below(12) {
            0..=2 => 0,
            3..=4 => self.random.below(size + 1),
            5..=6 => self.random.below(size + 1) & !4095,
            7 => size,
            8 => self.random.pick(&[1000, 1023, 1024, 1025, 4095, 4096, 4097]),
            9 => self.random.below(300_000),
            10 => self.random.below(80) * 4096,
            _ => 1 << self.random.below(42),
        }
    }

    fn write(&mut self) -> VolumeOperation {
        let ino = self.file();
        let offset = self.offset(ino);
        let len = match self.random.below(10) {
            0..=1 => self.random.below(100),
            2 => 4096,
            3 => self.random.pick(&[0, 1, 1023, 1024, 1025, 4095, 4097, 8192]),
            4..=6 => self.random.below(6000),
            7..=8 => self.random.below(60_000),
            _ => self.random.below(300_000),
        };
        let mut bytes = self.random.bytes(len as usize);
        if self.random.one_in(10) {
            bytes.fill(0);
        }
        let mode =
            WriteMode { keep_times: self.random.one_in(3), kill_privileges: self.random.one_in(2) };
        VolumeOperation::Write { ino, offset, bytes, mode }
    }

    fn allocate(&mut self) -> VolumeOperation {
        let ino = self.file();
        let offset = self.offset(ino);
        let len = match self.random.below(8) {
            0 => self.random.below(2),
            1 => self.random.below(5000),
            2 => 4096,
            3..=5 => self.random.below(60_000),
            6 => self.random.below(200_000) & !4095,
            // More than fits, or beyond the largest file.
            _ => 1 << self.random.pick(&[42, 44]),
        };
        let allocation = Allocation {
            mode: self.random.pick(&[
                AllocateMode::Reserve,
                AllocateMode::PunchHole,
                AllocateMode::ZeroRange,
            ]),
            keep_size: self.random.one_in(2),
            keep_times: self.random.one_in(3),
            kill_privileges: self.random.one_in(2),
        };
        VolumeOperation::Allocate { ino, offset, len, allocation }
    }

    fn copy(&mut self) -> VolumeOperation {
        let (from, to) = (self.file(), self.file());
        let (from, to) = ((from, self.offset(from)), (to, self.offset(to)));
        let len = self.random.below(100_000);
        let mode =
            WriteMode { keep_times: self.random.one_in(3), kill_privileges: self.random.one_in(2) };
        VolumeOperation::Copy { from, to, len, mode }
    }

    fn set_attributes(&mut self) -> VolumeOperation {
        let ino = if self.random.one_in(3) { self.ino() } else { self.file() };
        let bits = self.random.draw();
        let time = |bit: u32| {
            (bits >> bit & 3 == 0).then(|| Timestamp { nanos: 9, ..after(bits % 1_000_000) })
        };
        let mut changes = AttributeChanges {
            mode: (bits & 3 == 0).then_some((bits >> 40) as u32 & 0o7777),
            uid: (bits >> 2 & 7 == 0).then_some((bits >> 33) as u32),
            gid: (bits >> 5 & 7 == 0).then_some((bits >> 31) as u32),
            size: None,
            atime: time(8),
            mtime: time(10),
            // The time is never in the future, because a write shows the later of mtime and ctime.
            ctime: (bits >> 12 & 3 == 0).then_some(after(0)),
            btime: time(14),
            kill_privileges: bits >> 16 & 1 == 0,
            keep_times: bits >> 17 & 3 == 0,
            through_open: bits >> 19 & 1 == 0,
            keep_capability: false,
        };
        if self.random.one_in(2) {
            changes.size = Some(self.offset(ino));
        }
        VolumeOperation::SetAttributes { ino, changes }
    }

    /// Draws flags, in half of the cases none. The root stays usable.
    fn set_flags(&mut self) -> VolumeOperation {
        const ALL: [InodeFlags; 4] = [
            InodeFlags::NO_DUMP,
            InodeFlags::NO_ATIME,
            InodeFlags::IMMUTABLE,
            InodeFlags::APPEND_ONLY,
        ];
        let ino = self.ino();
        let choice = if ino == ROOT_INO { &ALL[..2] } else { &ALL[..] };
        let mut flags = InodeFlags::NONE;
        if self.random.one_in(2) {
            flags |= self.random.pick(choice);
            flags |= self.random.pick(choice);
        }
        VolumeOperation::SetFlags { ino, flags }
    }

    fn xattr_name(&mut self) -> Vec<u8> {
        match self.random.below(6) {
            0 => CAPABILITY.to_vec(),
            1 => vec![b'x'; 255],
            other => format!("user.{other}").into_bytes(),
        }
    }

    fn remove_xattr(&mut self) -> VolumeOperation {
        if self.random.one_in(2) {
            return VolumeOperation::RemoveXattr { ino: self.ino(), name: self.xattr_name() };
        }
        // Most files have no list.
        let name = self.random.pick(&AccessListKind::ALL).name();
        let ino = self.pick(|node| node.xattrs.contains_key(name));
        VolumeOperation::RemoveXattr { ino, name: name.to_vec() }
    }

    fn set_access_list(&mut self) -> VolumeOperation {
        let kind = self.random.pick(&AccessListKind::ALL);
        let ino = match kind {
            AccessListKind::Access => self.ino(),
            AccessListKind::Default => self.directory(),
        };
        let value = access_lists::draw(self.random);
        VolumeOperation::SetAccessList { ino, kind, value, clear_sgid: self.random.one_in(2) }
    }

    fn set_xattr(&mut self) -> VolumeOperation {
        let len = match self.random.below(8) {
            0 => 0,
            1..=4 => self.random.below(100),
            5 => self.random.below(1100),
            6 => self.random.below(10_000),
            _ => self.random.pick(&[1018, 1019, 65_535, 65_536, 65_537, 30_000]),
        };
        let mode = self.random.pick(&[XattrMode::Any, XattrMode::Create, XattrMode::Replace]);
        let value = self.random.bytes(len as usize);
        VolumeOperation::SetXattr { ino: self.ino(), name: self.xattr_name(), value, mode }
    }
}
