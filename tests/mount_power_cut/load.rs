//! Loads that run on a volume while its power is cut, and the data that must survive.
//!
//! Each load has files of its own. A load announces a version before writing it, and records a
//! version as synced only after the sync has returned.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::content;
use sfs_testkit::SeededRng;

const BLOCK: usize = 4096;
const FILES: usize = 4;
const BLOCKS: u64 = 16;

/// Largest length of a file that is written to a temporary name and renamed.
const REPLACED_LEN_MAX: u64 = 100_000;

/// Largest number of rows of a table.
const ROWS_MAX: u64 = 20_000;

/// Arguments of fio: blocks with checksums, overwritten at random. fio runs as one process, so that
/// one kill ends the load, and leaves no file in the current directory.
const FIO: [&str; 7] = [
    "--name=load",
    "--thread",
    "--bs=4k",
    "--size=2m",
    "--verify=crc32c",
    "--verify_state_save=0",
    "--ioengine=psync",
];

/// Programs, and the Debian packages that contain them.
const PROGRAMS: [(&str, &str); 3] =
    [("fio", "fio"), ("sqlite3", "sqlite3"), ("postmark", "postmark")];

/// Allowed versions of an item: at least the synced one, at most the last one begun.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    synced: u64,
    begun: u64,
}

/// State of all loads at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Versions of files that are written to a temporary name and renamed.
    replaced: [Range; FILES],
    /// Versions of each block of files that are written in place.
    overwritten: [[Range; BLOCKS as usize]; FILES],
    /// Rows of the tables of sqlite, by journal mode.
    rows: [Range; MODES.len()],
    /// `true` once the files of fio are laid out.
    laid_out: bool,
    /// Number of syncs that have returned.
    pub(crate) acknowledged: u64,
}

impl Ledger {
    /// Returns the allowed versions of an image that was taken after `self` and before `later`.
    pub(crate) fn until(mut self, later: &Self) -> Self {
        for (range, later) in self.replaced.iter_mut().zip(&later.replaced) {
            range.begun = later.begun;
        }
        let blocks = self.overwritten.as_flattened_mut();
        for (range, later) in blocks.iter_mut().zip(later.overwritten.as_flattened()) {
            range.begun = later.begun;
        }
        for (range, later) in self.rows.iter_mut().zip(&later.rows) {
            range.begun = later.begun;
        }
        self
    }
}

/// Journal modes of sqlite with their synchronous settings. EXTRA syncs the directory, which a
/// deleted rollback journal needs to be durable.
const MODES: [(&str, &str); 2] = [("WAL", "FULL"), ("DELETE", "EXTRA")];

/// The loads of one run.
#[derive(Default)]
pub(crate) struct Loads {
    ledger: Mutex<Ledger>,
    is_over: AtomicBool,
}

/// Returns whether `program` is installed; if not, prints its package.
fn has(program: &str) -> bool {
    let there = Command::new("which").arg(program).stdout(Stdio::null()).status();
    let there = there.is_ok_and(|status| status.success());
    if let (false, Some((_, package))) = (there, PROGRAMS.iter().find(|(name, _)| *name == program))
    {
        eprintln!("{program} is missing, so its load is skipped: apt-get install {package}");
    }
    there
}

fn replaced_len(version: u64) -> usize {
    8 + SeededRng::new(version).below(REPLACED_LEN_MAX) as usize
}

/// Returns the version that `bytes` begin with; 0 for a hole.
fn version_of(bytes: &[u8]) -> u64 {
    bytes.get(..8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

fn replaced(root: &Path, index: usize) -> PathBuf {
    root.join("replaced").join(index.to_string())
}

fn overwritten(root: &Path, index: usize) -> PathBuf {
    root.join("overwritten").join(index.to_string())
}

impl Loads {
    /// Returns the state at this moment.
    pub(crate) fn ledger(&self) -> Ledger {
        self.ledger.lock().expect("no load has panicked").clone()
    }

    fn note(&self, change: impl FnOnce(&mut Ledger)) {
        change(&mut self.ledger.lock().expect("no load has panicked"));
    }

    fn synced(&self, change: impl FnOnce(&mut Ledger)) {
        self.note(|ledger| {
            change(ledger);
            ledger.acknowledged += 1;
        });
    }

    /// Asks all loads to end.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns whether the loads are to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Creates the directories of the loads below `root`.
    pub(crate) fn make_directories(root: &Path) {
        for name in ["replaced", "overwritten", "fio", "sqlite", "postmark"] {
            fs::create_dir(root.join(name)).expect("a directory");
        }
    }

    /// The loads, each to be run by a thread of its own.
    pub(crate) const ALL: [fn(&Self, &Path, u64); 6] = [
        Self::replace_files,
        Self::overwrite_files,
        |loads, root, _| loads.run_sqlite(root, 0),
        |loads, root, _| loads.run_sqlite(root, 1),
        Self::run_fio,
        Self::run_postmark,
    ];

    fn replace_files(&self, root: &Path, seed: u64) {
        let mut random = SeededRng::new(seed);
        for version in 1.. {
            let index = random.below(FILES as u64) as usize;
            let (path, aside) = (replaced(root, index), root.join("replaced/aside"));
            self.note(|ledger| ledger.replaced[index].begun = version);
            let mut file = File::create(&aside).expect("a file");
            let bytes = content("replaced", version, replaced_len(version));
            file.write_all(&bytes).and_then(|()| file.sync_all()).expect("the file is written");
            fs::rename(&aside, &path).expect("the file is renamed");
            if random.below(2) == 0 {
                let directory = File::open(root.join("replaced")).expect("a directory");
                directory.sync_all().expect("the directory is synced");
                self.synced(|ledger| ledger.replaced[index].synced = version);
            }
            if self.is_over() {
                return;
            }
        }
    }

    fn overwrite_files(&self, root: &Path, seed: u64) {
        let mut random = SeededRng::new(seed ^ 1);
        for version in 1.. {
            let index = random.below(FILES as u64) as usize;
            let path = overwritten(root, index);
            let file = File::options().write(true).create(true).truncate(false).open(path);
            let file = file.expect("a file");
            let first = random.below(BLOCKS);
            let blocks = first..(first + 1 + random.below(8)).min(BLOCKS);
            for block in blocks.clone() {
                self.note(|ledger| ledger.overwritten[index][block as usize].begun = version);
                let bytes = content("overwritten", version, BLOCK);
                file.write_all_at(&bytes, block * BLOCK as u64).expect("the file is written");
            }
            file.sync_data().expect("the file is synced");
            self.synced(|ledger| {
                blocks.for_each(|b| ledger.overwritten[index][b as usize].synced = version);
            });
            if self.is_over() {
                return;
            }
        }
    }

    /// Commits one transaction for each row; sqlite prints a line after each commit.
    fn run_sqlite(&self, root: &Path, mode: usize) {
        if !has("sqlite3") {
            return;
        }
        let (journal, synchronous) = MODES[mode];
        let mut child = sqlite(&database(root, mode)).stdout(Stdio::piped()).spawn().expect("runs");
        let mut input = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut said = || output.next().expect("sqlite runs").expect("UTF-8");
        let setup = format!(
            "PRAGMA journal_mode={journal}; PRAGMA synchronous={synchronous};\n\
             CREATE TABLE rows (number INTEGER PRIMARY KEY, content TEXT); SELECT 'ready';\n"
        );
        input.write_all(setup.as_bytes()).expect("sqlite reads the setup");
        while said() != "ready" {}
        for number in 1..ROWS_MAX {
            self.note(|ledger| ledger.rows[mode].begun = number);
            let insert = format!(
                "INSERT INTO rows VALUES ({number}, hex(randomblob({}))); SELECT {number};\n",
                number * 37 % 300
            );
            input.write_all(insert.as_bytes()).expect("sqlite reads the statement");
            assert_eq!(said(), number.to_string(), "sqlite, {journal}");
            self.synced(|ledger| ledger.rows[mode].synced = number);
            if self.is_over() {
                break;
            }
        }
        drop(input);
        assert!(child.wait().expect("the program ends").success(), "sqlite, {journal}");
    }

    fn run_fio(&self, root: &Path, seed: u64) {
        if !has("fio") {
            return;
        }
        let fio = |arguments: &[&str], seed: u64| {
            let command = self.until_over(
                fio(root)
                    .args(arguments)
                    .args(["--do_verify=0", &format!("--randseed={}", seed >> 33)]),
            );
            assert!(command.is_none_or(|status| status), "fio {arguments:?}");
        };
        fio(&["--rw=write", "--end_fsync=1"], seed);
        self.note(|ledger| ledger.laid_out = !self.is_over());
        for round in 0.. {
            if self.is_over() {
                return;
            }
            let arguments = ["--rw=randwrite", "--norandommap", "--fsync=4", "--number_ios=400"];
            fio(&arguments, seed ^ round);
        }
    }

    /// Creates, appends to, reads and deletes small files, without a sync.
    fn run_postmark(&self, root: &Path, seed: u64) {
        if !has("postmark") {
            return;
        }
        let said = format!(
            "set location {}\nset number 100\nset size 500 20000\nset transactions 500\n\
             set seed {}\nrun\nquit\n",
            root.join("postmark").display(),
            seed % 10_000
        );
        while !self.is_over() {
            let mut command = Command::new("postmark");
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("runs");
            let sent = child.stdin.take().expect("a pipe").write_all(said.as_bytes());
            sent.expect("the program reads its input");
            assert!(self.wait(child).is_none_or(|status| status), "postmark");
        }
    }

    /// Runs `command` and returns whether it succeeded; `None` if it was stopped.
    fn until_over(&self, command: &mut Command) -> Option<bool> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        self.wait(child.expect("the program runs"))
    }

    fn wait(&self, mut child: Child) -> Option<bool> {
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                return Some(status.success());
            }
            if self.is_over() {
                child.kill().and_then(|()| child.wait()).expect("a child");
                return None;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

fn fio(root: &Path) -> Command {
    let mut command = Command::new("fio");
    command.args(FIO).arg(format!("--filename={}", root.join("fio/file").display()));
    command
}

fn database(root: &Path, mode: usize) -> PathBuf {
    root.join("sqlite").join(MODES[mode].0)
}

fn sqlite(database: &Path) -> Command {
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail"]).arg(database).stdin(Stdio::piped());
    command
}

/// Compares the files below `root` with the allowed versions.
pub(crate) fn verify(root: &Path, ledger: &Ledger) {
    for (index, range) in ledger.replaced.iter().enumerate() {
        verify_replaced(&replaced(root, index), *range);
    }
    for (index, ranges) in ledger.overwritten.iter().enumerate() {
        verify_overwritten(&overwritten(root, index), ranges);
    }
    for (mode, range) in ledger.rows.iter().enumerate() {
        verify_rows(&database(root, mode), *range);
    }
    if ledger.laid_out {
        let output = fio(root).args(["--rw=read", "--verify_fatal=1"]).output().expect("fio runs");
        assert!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn read(path: &Path, must_be: bool) -> Option<Vec<u8>> {
    match fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !must_be => None,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

fn verify_replaced(path: &Path, range: Range) {
    let Some(bytes) = read(path, range.synced > 0) else { return };
    let (version, shown) = (version_of(&bytes), path.display());
    assert!(
        (range.synced.max(1)..=range.begun).contains(&version),
        "{shown}: {version}, {range:?}"
    );
    let expected = content("replaced", version, replaced_len(version));
    assert!(bytes == expected, "{shown}: version {version} is not whole: {range:?}");
}

fn verify_overwritten(path: &Path, ranges: &[Range]) {
    let must_be = ranges.iter().any(|range| range.synced > 0);
    let Some(bytes) = read(path, must_be) else { return };
    for (block, range) in ranges.iter().enumerate() {
        let start = (block * BLOCK).min(bytes.len());
        let found = &bytes[start..(start + BLOCK).min(bytes.len())];
        let (version, shown) = (version_of(found), path.display());
        assert!(
            (range.synced..=range.begun).contains(&version),
            "{shown}, {block}: {version}, {range:?}"
        );
        match version {
            0 => assert!(found.iter().all(|byte| *byte == 0), "{shown}, {block}: never written"),
            _ => assert!(found == content("overwritten", version, BLOCK), "{shown}, {block}: torn"),
        }
    }
}

fn verify_rows(database: &Path, range: Range) {
    if range.synced == 0 {
        return;
    }
    let mut child = sqlite(database).stdout(Stdio::piped()).spawn().expect("sqlite3 runs");
    let asked = "PRAGMA integrity_check; SELECT count(*), min(number), max(number) FROM rows;\n";
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(asked.as_bytes())
        .expect("sqlite reads the query");
    let output = child.wait_with_output().expect("the program ends");
    let (said, shown) = (String::from_utf8_lossy(&output.stdout).into_owned(), database.display());
    let (integrity, counts) = said.split_once('\n').unwrap_or((&said, ""));
    assert_eq!(integrity, "ok", "{shown}: {range:?}");
    let counts: Vec<u64> = counts.trim().split('|').filter_map(|n| n.parse().ok()).collect();
    let [count, 1, last] = counts[..] else { panic!("{shown}: {counts:?}, {range:?}") };
    assert_eq!(count, last, "{shown}: rows are missing: {range:?}");
    assert!((range.synced..=range.begun).contains(&last), "{shown}: {last} rows, {range:?}");
}
