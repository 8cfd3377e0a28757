//! All short sequences of operations, after the bounded black-box testing of CrashMonkey's ACE.
//!
//! The operations act on top-level files and on two directories with files, to a depth of two. Writes
//! overwrite the start, the middle and the end of files, and append. Each operation is followed by each kind
//! of sync, or by none unless it is the last. Sequences of one and two operations are numbered.

use sfs_core::format::{AccessListKind, InodeFlags, Label, ROOT_INO};
use sfs_core::request::{
    AllocateMode, Allocation, AttributeChanges, RenameMode, WriteMode, XattrMode,
};

use crate::model::access_lists;
use crate::model::fixture::{DIRECTORY, FILE};
use crate::model::operation::VolumeOperation;
use crate::model::random::SplitMix64;
use crate::model::reference::Reference;

/// Operation on paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// `creat`.
    Create(&'static str),
    /// `mkdir`.
    MakeDirectory(&'static str),
    /// `symlink`.
    Symlink(&'static str),
    /// `mknod` of a pipe.
    MakePipe(&'static str),
    /// `write` at an offset, with a length in bytes.
    Write(&'static str, u64, usize),
    /// Write-back of the page cache after changes through `mmap`: whole blocks, without changing times.
    WriteBack(&'static str, u64, usize),
    /// `truncate` to a size.
    Truncate(&'static str, u64),
    /// `truncate` to a size, and to a larger one before anything is written.
    Regrow(&'static str, u64, u64),
    /// `open(O_TRUNC)` and `write` of a length in bytes.
    Rewrite(&'static str, usize),
    /// Safe save of an editor: `creat` of `/new`, `write` of a length in bytes, `close`, and `rename` over the
    /// file.
    Replace(&'static str, usize),
    /// `open(O_TMPFILE)`.
    MakeUnnamed,
    /// Atomic creation of a file with content: `open(O_TMPFILE)`, `write` of a length in bytes, and `linkat`.
    Publish(&'static str, usize),
    /// `link`.
    Link(&'static str, &'static str),
    /// `unlink`.
    Unlink(&'static str),
    /// `unlink` of a file that stays open.
    UnlinkOpen(&'static str),
    /// `rmdir`.
    RemoveDirectory(&'static str),
    /// `rename`.
    Rename(&'static str, &'static str),
    /// `renameat2(RENAME_EXCHANGE)`.
    Exchange(&'static str, &'static str),
    /// `renameat2(RENAME_WHITEOUT)`.
    Whiteout(&'static str, &'static str),
    /// `setxattr` with a value of a length in bytes.
    SetXattr(&'static str, usize),
    /// `removexattr`.
    RemoveXattr(&'static str),
    /// `chmod`.
    Chmod(&'static str),
    /// `setfacl` for a user and a group.
    SetList(&'static str),
    /// `setfacl -d` of a directory.
    SetDefaultList(&'static str),
    /// `setfacl`, then `chmod`.
    ChmodListed(&'static str),
    /// `setfacl -d` of a directory, then `creat` of a file in it.
    CreateListed(&'static str, &'static str),
    /// `setfacl -d` of a directory, then `mkdir` of a directory in it.
    MakeDirectoryListed(&'static str, &'static str),
    /// `removexattr` of an access list, after `setfacl`.
    RemoveList(&'static str),
    /// Change of the volume's label.
    SetLabel(&'static str),
    /// `chattr +d`.
    SetFlag(&'static str),
    /// `read`, which moves the time of access.
    Access(&'static str),
    /// `fallocate` of a range, which makes the file longer.
    Allocate(&'static str, u64, u64),
    /// `fallocate(FALLOC_FL_KEEP_SIZE)` of a range.
    AllocateKept(&'static str, u64, u64),
    /// `fallocate(FALLOC_FL_PUNCH_HOLE)` of a range.
    Punch(&'static str, u64, u64),
    /// `write` of a range, and a hole punched there before anything is written back.
    PunchDirty(&'static str, u64, u64),
    /// `fallocate(FALLOC_FL_ZERO_RANGE)` of a range, which makes the file longer.
    Zero(&'static str, u64, u64),
    /// `copy_file_range` to the start of another file.
    CopyRange(&'static str, &'static str, u64),
    /// Growth of the volume by this many segments.
    Grow(u32),
    /// Growth by this many segments, writes that use every segment, and loss of the new segments.
    GrowAndShrink(u32),
}

use Recipe::{
    Access, Allocate, AllocateKept, Chmod, ChmodListed, CopyRange, Create, CreateListed, Exchange,
    Grow, GrowAndShrink, Link, MakeDirectory, MakeDirectoryListed, MakePipe, MakeUnnamed, Publish,
    Punch, PunchDirty, Regrow, RemoveDirectory, RemoveList, RemoveXattr, Rename, Replace, Rewrite,
    SetDefaultList, SetFlag, SetLabel, SetList, SetXattr, Symlink, Truncate, Unlink, UnlinkOpen,
    Whiteout, Write, WriteBack, Zero,
};

/// All operations with all their arguments.
///
/// At first `/foo` has four blocks and a tail, `/A/foo` has 300 bytes, `/A/bar` has one and a half blocks and
/// an extended attribute, and `/B` is empty.
pub const RECIPES: &[Recipe] = &[
    Create("/bar"),
    Create("/A/new"),
    Create("/B/foo"),
    MakeDirectory("/C"),
    MakeDirectory("/A/C"),
    Symlink("/B/link"),
    MakePipe("/B/pipe"),
    Write("/foo", 0, 4096),
    Write("/foo", 100, 200),
    Write("/foo", 6000, 5000),
    Write("/foo", 16_384, 100),
    Write("/foo", 16_484, 9000),
    Write("/foo", 40_000, 10),
    Write("/A/foo", 0, 100),
    Write("/A/foo", 300, 300),
    Write("/A/foo", 300, 5000),
    Write("/A/bar", 0, 6144),
    Write("/A/bar", 6144, 70_000),
    WriteBack("/foo", 4096, 8192),
    WriteBack("/A/bar", 0, 4096),
    Truncate("/foo", 0),
    Truncate("/foo", 5000),
    Truncate("/foo", 30_000),
    Truncate("/A/foo", 0),
    Truncate("/A/foo", 100),
    Truncate("/A/bar", 4096),
    Regrow("/foo", 5000, 30_000),
    Rewrite("/foo", 200),
    Rewrite("/foo", 9000),
    Rewrite("/A/foo", 9000),
    Link("/foo", "/bar"),
    Link("/foo", "/A/new"),
    Link("/A/foo", "/B/foo"),
    Unlink("/foo"),
    Unlink("/A/foo"),
    Unlink("/A/bar"),
    UnlinkOpen("/foo"),
    UnlinkOpen("/A/bar"),
    RemoveDirectory("/B"),
    Rename("/foo", "/bar"),
    Rename("/foo", "/A/foo"),
    Rename("/A/foo", "/foo"),
    Rename("/A/bar", "/A/foo"),
    Rename("/A/bar", "/B/bar"),
    Rename("/A", "/C"),
    Rename("/A", "/B"),
    Exchange("/foo", "/A/bar"),
    SetXattr("/foo", 20),
    SetXattr("/A", 3000),
    SetXattr("/A/bar", 900),
    // These values make deltas that take more than one chunk.
    SetXattr("/foo", 60_000),
    SetXattr("/A", 60_000),
    RemoveXattr("/A/bar"),
    Chmod("/A/foo"),
    Replace("/foo", 9000),
    Replace("/A/bar", 200),
    Whiteout("/foo", "/A/foo"),
    Whiteout("/A/bar", "/B/bar"),
    Publish("/bar", 200),
    Publish("/A/new", 9000),
    SetLabel("a name"),
    SetFlag("/A/foo"),
    Access("/foo"),
    SetList("/A/foo"),
    SetDefaultList("/A"),
    ChmodListed("/A/foo"),
    CreateListed("/A", "/A/new"),
    MakeDirectoryListed("/B", "/B/C"),
    RemoveList("/foo"),
    Allocate("/foo", 10_000, 50_000),
    Allocate("/A/foo", 0, 9000),
    AllocateKept("/foo", 12_288, 40_960),
    AllocateKept("/A/foo", 0, 8192),
    Punch("/foo", 4096, 8192),
    Punch("/foo", 5000, 30_000),
    Punch("/A/bar", 0, 9000),
    PunchDirty("/foo", 4096, 8192),
    Zero("/foo", 100, 12_000),
    Zero("/A/bar", 4096, 20_000),
    CopyRange("/foo", "/A/bar", 9000),
    CopyRange("/A/foo", "/foo", 300),
    Grow(1),
    Grow(4),
    GrowAndShrink(3),
];

/// Sync that follows an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// No sync.
    None,
    /// `fsync` of the file that the operation changed.
    Target,
    /// `fdatasync` of the file that the operation changed.
    Data,
    /// `fsync` of the directory of that file.
    Parent,
    /// `fsync` of another file.
    Other,
    /// `sync`.
    All,
}

/// All kinds of sync.
pub const PERSISTS: [Persist; 6] =
    [Persist::None, Persist::Target, Persist::Data, Persist::Parent, Persist::Other, Persist::All];

/// Operation and the sync that follows it.
pub type SequenceStep = (Recipe, Persist);

const STEPS: u64 = (RECIPES.len() * PERSISTS.len()) as u64;

/// Number of steps that end with a sync.
const LAST_STEPS: u64 = (RECIPES.len() * (PERSISTS.len() - 1)) as u64;

/// Number of sequences of one operation.
pub const SINGLES: u64 = LAST_STEPS;

/// Number of sequences of one or two operations.
pub const SEQUENCES: u64 = SINGLES + STEPS * LAST_STEPS;

/// Returns sequence `index`, below [`SEQUENCES`]; sequences of one operation come first.
pub fn sequence(index: u64) -> Vec<SequenceStep> {
    match index.checked_sub(SINGLES) {
        None => vec![last_step(index)],
        Some(pair) => vec![step(pair / LAST_STEPS), last_step(pair % LAST_STEPS)],
    }
}

fn step(index: u64) -> SequenceStep {
    let persists = PERSISTS.len() as u64;
    (RECIPES[(index / persists) as usize], PERSISTS[(index % persists) as usize])
}

fn last_step(index: u64) -> SequenceStep {
    let persists = PERSISTS.len() as u64 - 1;
    (RECIPES[(index / persists) as usize], PERSISTS[1 + (index % persists) as usize])
}

/// Returns the operations that make the initial files of every sequence. Inode numbers are assigned in order,
/// from 16 on.
pub fn initial_files() -> Vec<VolumeOperation> {
    let bytes = |len| SplitMix64::new(len as u64).bytes(len);
    let make = |parent, name: &str, mode| VolumeOperation::Make {
        parent,
        name: name.into(),
        mode,
        rdev: 0,
    };
    let write = |ino, len| VolumeOperation::Write {
        ino,
        offset: 0,
        bytes: bytes(len),
        mode: WriteMode::default(),
    };
    let (top, a, a_foo, a_bar) = (16, 17, 19, 20);
    vec![
        make(ROOT_INO, "foo", FILE),
        make(ROOT_INO, "A", DIRECTORY),
        make(ROOT_INO, "B", DIRECTORY),
        make(a, "foo", FILE),
        make(a, "bar", FILE),
        write(top, 16_484),
        write(a_foo, 300),
        write(a_bar, 6144),
        VolumeOperation::SetXattr {
            ino: a_bar,
            name: b"user.x".into(),
            value: bytes(2000),
            mode: XattrMode::Any,
        },
        VolumeOperation::Reopen { close: true },
    ]
}

/// Returns the directory and the last name of `path`; `None` if the directory does not exist.
fn resolve(reference: &Reference, path: &str) -> Option<(u64, Vec<u8>)> {
    let mut names: Vec<&str> = path.split('/').skip(1).collect();
    let last = names.pop()?.as_bytes().to_vec();
    let mut parent = ROOT_INO;
    for name in names {
        parent = reference.find(parent, name.as_bytes()).ok()?;
    }
    Some((parent, last))
}

/// Number of bytes that take half of the segments of a sequence's volume. Segments that were never used come first.
const HALF_OF_LOG: usize = 2_000_000;

/// Placeholder path of the file that has no name yet.
const UNNAMED: &str = "(unnamed)";

fn find(reference: &Reference, path: &str) -> Option<u64> {
    if path == UNNAMED {
        return reference.unnamed();
    }
    let (parent, name) = resolve(reference, path)?;
    reference.find(parent, &name).ok()
}

/// Splits `recipe` into its parts; files are closed after each part.
pub fn parts(recipe: Recipe) -> Vec<Recipe> {
    const NEW: &str = "/new";
    match recipe {
        Replace(path, len) => vec![Create(NEW), Write(NEW, 0, len), Rename(NEW, path)],
        ChmodListed(path) => vec![SetList(path), Chmod(path)],
        CreateListed(parent, path) => vec![SetDefaultList(parent), Create(path)],
        MakeDirectoryListed(parent, path) => vec![SetDefaultList(parent), MakeDirectory(path)],
        Publish(path, len) => vec![MakeUnnamed, Write(UNNAMED, 0, len), Link(UNNAMED, path)],
        recipe => vec![recipe],
    }
}

/// Returns the operations of `recipe`, which must be a single part; none if one of its files does not exist.
pub fn operations(recipe: Recipe, reference: &Reference, seed: u64) -> Vec<VolumeOperation> {
    prepare(recipe, reference, seed).unwrap_or_default()
}

fn prepare(recipe: Recipe, reference: &Reference, seed: u64) -> Option<Vec<VolumeOperation>> {
    let at = |path: &str| resolve(reference, path);
    let file = |path: &str| find(reference, path);
    let bytes = |len| SplitMix64::new(seed).bytes(len);
    let write = |ino, offset, len, keep_times| VolumeOperation::Write {
        ino,
        offset,
        bytes: bytes(len),
        mode: WriteMode { keep_times, ..WriteMode::default() },
    };
    let make = |path: &str, mode| {
        at(path).map(|(parent, name)| VolumeOperation::Make { parent, name, mode, rdev: 0 })
    };
    let truncate = |ino, size| VolumeOperation::SetAttributes {
        ino,
        changes: AttributeChanges { size: Some(size), ..Default::default() },
    };
    let rename = |from: &str, to: &str, mode| {
        Some(VolumeOperation::Rename { from: at(from)?, to: at(to)?, mode })
    };
    let allocate = |path: &str, offset, len, mode, keep_size| {
        let allocation = Allocation { mode, keep_size, keep_times: false, kill_privileges: false };
        Some(vec![VolumeOperation::Allocate { ino: file(path)?, offset, len, allocation }])
    };
    let xattr = || b"user.x".to_vec();
    let set_list = |ino, kind| VolumeOperation::SetAccessList {
        ino,
        kind,
        value: access_lists::list(0o654, &[(9, 7)], &[(9, 4)]),
        clear_sgid: false,
    };
    Some(match recipe {
        Create(path) => vec![make(path, FILE)?],
        MakeDirectory(path) => vec![make(path, DIRECTORY)?],
        MakePipe(path) => vec![make(path, 0o010_644)?],
        Symlink(path) => {
            let (parent, name) = at(path)?;
            vec![VolumeOperation::Symlink { parent, name, target: b"../A/foo".into() }]
        }
        Write(path, offset, len) => vec![write(file(path)?, offset, len, false)],
        WriteBack(path, offset, len) => vec![write(file(path)?, offset, len, true)],
        Truncate(path, size) => vec![truncate(file(path)?, size)],
        Regrow(path, small, large) => {
            let ino = file(path)?;
            vec![truncate(ino, small), truncate(ino, large)]
        }
        Rewrite(path, len) => {
            let ino = file(path)?;
            vec![truncate(ino, 0), write(ino, 0, len, false)]
        }
        Replace(..) | Publish(..) | ChmodListed(_) | CreateListed(..) | MakeDirectoryListed(..) => {
            unreachable!("{recipe:?} has parts")
        }
        SetList(path) => vec![set_list(file(path)?, AccessListKind::Access)],
        SetDefaultList(path) => vec![set_list(file(path)?, AccessListKind::Default)],
        RemoveList(path) => {
            let (ino, kind) = (file(path)?, AccessListKind::Access);
            let remove = VolumeOperation::RemoveXattr { ino, name: kind.name().to_vec() };
            vec![set_list(ino, kind), remove]
        }
        SetLabel(name) => {
            vec![VolumeOperation::SetLabel { label: Label::new(name).expect("a label") }]
        }
        Allocate(path, offset, len) => allocate(path, offset, len, AllocateMode::Reserve, false)?,
        AllocateKept(path, offset, len) => {
            allocate(path, offset, len, AllocateMode::Reserve, true)?
        }
        Punch(path, offset, len) => allocate(path, offset, len, AllocateMode::PunchHole, true)?,
        PunchDirty(path, offset, len) => {
            let ino = file(path)?;
            let mut all = vec![write(ino, offset, len as usize, false)];
            all.extend(allocate(path, offset, len, AllocateMode::PunchHole, true)?);
            all.push(VolumeOperation::Read { ino, offset: 0, len: (offset + len) as usize });
            all
        }
        Zero(path, offset, len) => allocate(path, offset, len, AllocateMode::ZeroRange, false)?,
        CopyRange(from, to, len) => vec![VolumeOperation::Copy {
            from: (file(from)?, 0),
            to: (file(to)?, 0),
            len,
            mode: WriteMode::default(),
        }],
        GrowAndShrink(segments) => {
            let ino = file("/foo")?;
            vec![
                VolumeOperation::Grow { segments, nonce: seed },
                write(ino, 0, HALF_OF_LOG, false),
                write(ino, 0, HALF_OF_LOG, false),
                truncate(ino, 9000),
                VolumeOperation::SyncAll,
                VolumeOperation::Shrink { segments, nonce: seed + 1 },
            ]
        }
        Grow(segments) => vec![VolumeOperation::Grow { segments, nonce: seed }],
        MakeUnnamed => vec![VolumeOperation::MakeUnnamed { parent: ROOT_INO, mode: FILE }],
        Link(from, to) => {
            let (parent, name) = at(to)?;
            vec![VolumeOperation::Link { ino: file(from)?, parent, name }]
        }
        Unlink(path) => {
            let (parent, name) = at(path)?;
            vec![VolumeOperation::Unlink { parent, name }]
        }
        UnlinkOpen(path) => {
            let (parent, name) = at(path)?;
            let open = VolumeOperation::Lookup { parent, name: name.clone() };
            vec![open, VolumeOperation::Unlink { parent, name }]
        }
        RemoveDirectory(path) => {
            let (parent, name) = at(path)?;
            vec![VolumeOperation::RemoveDirectory { parent, name }]
        }
        Rename(from, to) => vec![rename(from, to, RenameMode::Replace)?],
        Exchange(from, to) => vec![rename(from, to, RenameMode::Exchange)?],
        Whiteout(from, to) => vec![rename(from, to, RenameMode::Whiteout)?],
        SetXattr(path, len) => vec![VolumeOperation::SetXattr {
            ino: file(path)?,
            name: xattr(),
            value: bytes(len),
            mode: XattrMode::Any,
        }],
        RemoveXattr(path) => vec![VolumeOperation::RemoveXattr { ino: file(path)?, name: xattr() }],
        SetFlag(path) => {
            vec![VolumeOperation::SetFlags { ino: file(path)?, flags: InodeFlags::NO_DUMP }]
        }
        Access(path) => vec![VolumeOperation::Access { ino: file(path)? }],
        Chmod(path) => vec![VolumeOperation::SetAttributes {
            ino: file(path)?,
            changes: AttributeChanges { mode: Some(0o600), ..Default::default() },
        }],
    })
}

/// Returns the sync that follows `recipe`, after `recipe` was performed; `None` for no sync.
pub fn sync(recipe: Recipe, persist: Persist, reference: &Reference) -> Option<VolumeOperation> {
    let path = target(recipe);
    let parent = resolve(reference, path).map_or(ROOT_INO, |(parent, _)| parent);
    let ino = match persist {
        Persist::None => return None,
        Persist::All => return Some(VolumeOperation::SyncAll),
        Persist::Target => find(reference, path).unwrap_or(parent),
        Persist::Data => {
            let ino = find(reference, path).unwrap_or(parent);
            return Some(VolumeOperation::SyncData { ino });
        }
        Persist::Parent => parent,
        Persist::Other => ["/A/bar", "/foo", "/A/foo"]
            .into_iter()
            .filter(|other| *other != path)
            .find_map(|other| find(reference, other))
            .unwrap_or(ROOT_INO),
    };
    Some(VolumeOperation::SyncFile { ino })
}

/// Returns the path that a recipe changes, or creates.
fn target(recipe: Recipe) -> &'static str {
    match recipe {
        Create(path) | MakeDirectory(path) | Symlink(path) | MakePipe(path) => path,
        Write(path, ..) | WriteBack(path, ..) | Truncate(path, _) | Regrow(path, ..) => path,
        Allocate(path, ..) | AllocateKept(path, ..) | Punch(path, ..) | Zero(path, ..) => path,
        PunchDirty(path, ..) => path,
        CopyRange(_, to, _) => to,
        Rewrite(path, _) | Replace(path, _) | Publish(path, _) => path,
        MakeUnnamed => UNNAMED,
        SetLabel(_) | Grow(_) | GrowAndShrink(_) => "/",
        Unlink(path) | UnlinkOpen(path) | RemoveDirectory(path) => path,
        SetXattr(path, _) | RemoveXattr(path) | Chmod(path) => path,
        SetFlag(path) | Access(path) => path,
        SetList(path) | SetDefaultList(path) | ChmodListed(path) | RemoveList(path) => path,
        CreateListed(_, path) | MakeDirectoryListed(_, path) => path,
        Link(_, to) | Rename(_, to) | Exchange(_, to) | Whiteout(_, to) => to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_numbered_without_repetition() {
        let all: Vec<Vec<SequenceStep>> = (0..SEQUENCES).map(sequence).collect();
        let distinct: std::collections::HashSet<String> =
            all.iter().map(|steps| format!("{steps:?}")).collect();
        assert_eq!(distinct.len() as u64, SEQUENCES);
        assert!(all.iter().all(|steps| steps.last().expect("a step").1 != Persist::None));
    }
}
