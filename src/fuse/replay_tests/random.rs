//! Random changes, and a death at each kind of moment: the volume is as if the daemon had lived.

use std::collections::BTreeMap;

use super::*;

const NAMES: u64 = 6;

/// Random requests, to nodes that there may be.
struct Requests {
    random: SeededRng,
    unique: u64,
}

impl Requests {
    fn next(&mut self, nodes: &[u64]) -> Vec<u8> {
        self.unique += 2;
        let random = &mut self.random;
        let node = nodes[random.below(nodes.len() as u64) as usize];
        let other = nodes[random.below(nodes.len() as u64) as usize];
        let name = format!("name-{}\0", random.below(NAMES));
        let second = format!("name-{}\0", random.below(NAMES));
        let (name, second) = (name.as_bytes(), second.as_bytes());
        let (at, len) = (random.below(60_000), 1 + random.below(9000));
        let unique = self.unique;
        let of = |kind, parts: &[&[u8]]| message(unique, kind, parts);
        match random.below(18) {
            16 => of((TMPFILE, node), &[&words([2, 0o100_600, 0, 0]), b"\0"]),
            17 => {
                let flags = (libc::O_TRUNC | libc::O_RDWR).cast_unsigned();
                of((OPEN, node), &[&words([flags, random.below(2) as u32])])
            }
            0 => of((MKDIR, node), &[&words([0o755, 0]), name]),
            1 => of((MKNOD, node), &[&words([0o100_644, 0, 0, 0]), name]),
            2 => of((CREATE, node), &[&words([2, 0o100_644, 0, 0]), name]),
            3 => of((SYMLINK, node), &[name, second]),
            4 => of((UNLINK, node), &[name]),
            5 => of((RMDIR, node), &[name]),
            6 => of((LINK, node), &[&longs([other]), name]),
            7 | 8 => {
                let flags = [0, 0, 1, 2][random.below(4) as usize];
                of((RENAME, node), &[&longs([other]), &words([flags, 0]), name, second])
            }
            9 => {
                let flags = random.below(3) as u32;
                of((SETXATTR, node), &[&words([3, flags]), b"user.x\0", &random.bytes(3)])
            }
            10 => of((REMOVEXATTR, node), &[b"user.x\0"]),
            11 => {
                let mut body = words([1 << 3, 0]);
                body.extend(longs([0, at]));
                body.resize(88, 0);
                of((SETATTR, node), &[&body])
            }
            12 => {
                let mut body = words([1, 0]);
                body.resize(68, 0);
                let suid = 0o4000 * random.below(2) as u32;
                body.extend(words([0o640 + random.below(8) as u32 + suid]));
                body.resize(88, 0);
                of((SETATTR, node), &[&body])
            }
            13 if random.one_in(2) => {
                let mode = [0, 1, 3][random.below(3) as usize];
                of((FALLOCATE, node), &[&longs([0, at, len]), &words([mode, 0])])
            }
            _ => {
                let data = random.bytes(len as usize);
                // From the program, from the cache, or of a program that may not leave the suid bit.
                let flags = [0, 1, 4][random.below(3) as usize];
                let lens = words([data.len() as u32, flags]);
                let head = [longs([0, at]), lens, longs([0]), words([0, 0])];
                of((WRITE, node), &[&head.concat(), &data])
            }
        }
    }
}

/// Inode with its number, content, and attribute of a file.
type SeenFile = (u64, Inode, Vec<u8>, Option<Vec<u8>>);

/// Everything that callers see of a volume, by path.
fn everything(volume: &Volume, spares: bool) -> BTreeMap<String, SeenFile> {
    volume.sync_all().expect("RAM does not fail");
    let mut found = BTreeMap::new();
    let mut left = vec![(String::new(), ROOT_INO)];
    while let Some((path, ino)) = left.pop() {
        let inode = volume.attributes(ino).expect("the file is there");
        let mut content = Vec::new();
        match inode.kind() {
            sfs_core::format::FileKind::Directory => {
                let mut add = |entry: &sfs_core::request::DirectoryEntry<'_>| {
                    if !matches!(entry.name, b"." | b"..") {
                        let name = String::from_utf8_lossy(entry.name);
                        left.push((format!("{path}/{name}"), entry.ino));
                    }
                    true
                };
                volume.read_directory(ino, 0, false, &mut add).expect("a directory");
            }
            sfs_core::format::FileKind::Regular => {
                let read = volume.read(ino, 0, inode.size as usize).expect("a file");
                content = read.as_bytes().to_vec();
            }
            _ => {}
        }
        let attribute = volume.xattr(ino, b"user.x").ok();
        // What was written twice counts twice, and a file may have no reservations in two ways: its blocks count them.
        let flags = InodeFlags::OF_USERS | InodeFlags::XATTRS | InodeFlags::INLINE;
        let flags = inode.flags.intersection(flags);
        let inode = Inode { write_count: 0, modified: 0, flags, ..inode };
        let inode = if spares { without_form(inode) } else { inode };
        found.insert(path, (ino, inode, content, attribute));
    }
    found
}

/// Returns an inode without what tells how its content is stored, which is another way if less is written.
fn without_form(inode: Inode) -> Inode {
    let flags = inode.flags.intersection(InodeFlags::OF_USERS | InodeFlags::XATTRS);
    Inode { blocks: 0, flags, ..inode }
}

/// Moment at which the daemon dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Between,
    /// The last change was recorded, and not executed.
    Begun,
    /// The last change was executed, and its reply not recorded.
    Executed,
    /// As above, and it is in the log.
    Committed,
}

fn commit_some(
    random: &mut SeededRng,
    shell: &FuseShell,
    (nodes, requests): (&[u64], &mut Requests),
) {
    // A sync by a program is recorded, one by the daemon is not.
    let mut ask = |opcode, node, parts: &[&[u8]]| {
        requests.unique += 2;
        let bytes = message(requests.unique, (opcode, node), parts);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        let _ = shell.answer(&request, &mut []);
    };
    match random.below(16) {
        0 => shell.volume.sync_all().expect("RAM does not fail"),
        1 | 2 => {
            let node = nodes[random.below(nodes.len() as u64) as usize];
            let _ = shell.volume.sync_file(node);
        }
        3 | 4 => {
            let node = nodes[random.below(nodes.len() as u64) as usize];
            let data_only = random.below(2) as u32;
            ask(FSYNC, node, &[&longs([0]), &words([data_only, 0])]);
        }
        5 => ask(SYNCFS, ROOT_INO, &[&longs([0])]),
        _ => {}
    }
}

/// Runs random changes to a death, goes on, and compares with a volume on which nobody died.
fn die(seed: u64, death: Death, spares: bool) {
    let device = new_device();
    let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("it opens");
    let mut shell = shell(volume);
    let handles = shell.handles();
    let opened: Box<survival::OpenedNow> = Box::new(move || handles.opened_now());
    let parts = (shell.volume.clone(), opened);
    let journal = survival::begin(survival::Areas::new().expect("memory"), parts, "device");
    shell.set_journal(journal.clone());
    let mut requests = Requests { random: SeededRng::new(seed), unique: 0 };
    let mut random = SeededRng::new(!seed);
    let mut nodes = vec![ROOT_INO];
    for _ in 0..random.below(120) {
        let bytes = requests.next(&nodes);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        if let Ok(Reply::Entry(entry) | Reply::Created(entry, _)) = shell.answer(&request, &mut [])
        {
            nodes.push(entry.node);
        }
        commit_some(&mut random, &shell, (&nodes, &mut requests));
    }
    if death != Death::Between {
        let bytes = requests.next(&nodes);
        let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
        let changing = journal.begin(request.message, || shell.before(&request));
        if death != Death::Begun {
            let _ = shell.pass(&request, None, &mut []);
        }
        if death == Death::Committed {
            shell.volume.sync_all().expect("RAM does not fail");
        }
        drop(changing);
    }
    let records = journal.descriptor().expect("a descriptor");
    drop((shell, journal));
    let (revived, changes) = revive(device, records.into(), spares);
    let oracle =
        self::shell(Volume::open(new_device(), VolumeOptions::default(), NOW).expect("it opens"));
    for change in &changes {
        let _time = file_clock::fix(change.begun.now);
        let request = FuseRequest::decode(&change.message, FLAGS).expect("a request");
        let _ = oracle.pass(&request, None, &mut []);
    }
    let (found, expected) =
        (everything(&revived.volume, spares), everything(&oracle.volume, spares));
    for (path, file) in &expected {
        assert!(
            found.get(path) == Some(file),
            "seed {seed}, {death:?}: {path}: {:?}\n{:?}",
            found.get(path).map(|f| (f.0, f.1)),
            (file.0, file.1)
        );
    }
    assert_eq!(found.len(), expected.len(), "seed {seed}, {death:?}");
}

fn die_in_every_way(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        for death in [Death::Between, Death::Begun, Death::Executed, Death::Committed] {
            die(seed, death, false);
            die(seed, death, true);
        }
    }
}

#[test]
fn a_volume_goes_on_as_if_the_daemon_had_lived() {
    die_in_every_way(0..24);
}

/// Takes six minutes in a debug build. `SFS_SEED` is the first seed.
#[test]
#[ignore = "long: `cargo test --release -p sfs --lib replay -- --ignored`"]
fn a_volume_goes_on_as_if_the_daemon_had_lived_in_many_cases() {
    die_in_every_way(number_from_env("SFS_SEED", 24)..1000);
}
