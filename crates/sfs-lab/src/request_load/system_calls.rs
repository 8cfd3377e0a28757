//! Recorded system calls as requests, in the text of Mobibench: `thread microseconds call arguments`, a call a line.
//!
//! | call | arguments |
//! |---|---|
//! | `open` | name, flags, descriptor |
//! | `read`, `write` | descriptor, length |
//! | `pread`, `pwrite` | descriptor, offset, length |
//! | `fsync`, `fdatasync`, `close` | descriptor, result |
//! | `ftruncate` | descriptor, length |
//! | `unlink` | name, result |
//! | `rename` | name, new name, result |
//!
//! `access`, `stat`, `lstat`, `fstat` (also with `64`) and calls that failed change nothing and are left out. All threads
//! share the descriptors. A name in quotation marks is a file. Other names are not those of files (the recorder has
//! left them out): then the descriptor is the file, and O_TRUNC or O_EXCL begins a new one.

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashMap;
use sfs_trace::{TraceOperation, TraceRequest};

/// Returns whether the first line of a text is a system call.
pub(crate) fn is_call(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let mut is_number = || words.next().is_some_and(|word| word.parse::<u64>().is_ok());
    is_number()
        && is_number()
        && words.next().is_some_and(|call| call.starts_with(|c: char| c.is_ascii_lowercase()))
}

/// Parses all calls of a text.
pub(super) fn requests(text: &str) -> Result<Vec<TraceRequest>> {
    let mut calls = Calls::default();
    for (no, line) in (1..).zip(text.lines()) {
        if !line.trim().is_empty() {
            calls.add(&words(line)).with_context(|| format!("line {no}: {line}"))?;
        }
    }
    Ok(calls.requests)
}

/// Divides a line at its spaces, except for those in quotation marks.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let quoted = rest.strip_prefix('"').and_then(|inner| inner.find('"')).map(|end| end + 2);
        let end = quoted.or_else(|| rest.find(char::is_whitespace)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after.trim_start();
    }
    words
}

fn number(word: &str) -> Result<u64> {
    word.parse().with_context(|| format!("not a number: {word}"))
}

/// Returns the file's name, if the word is one.
fn name(word: &str) -> Option<&str> {
    word.strip_prefix('"')?.strip_suffix('"')
}

/// An open file.
#[derive(Clone, Copy)]
struct OpenFile {
    ino: u64,
    position: u64,
}

#[derive(Default)]
struct Calls<'a> {
    requests: Vec<TraceRequest>,
    /// Time of the call; the calls of several threads need not be in the order of their times.
    now_us: u64,
    /// Length of every file, by its number less one.
    lengths: Vec<u64>,
    named: FxHashMap<&'a str, u64>,
    open: FxHashMap<u64, OpenFile>,
    /// Last file without a name of each descriptor.
    unnamed: FxHashMap<u64, u64>,
}

impl<'a> Calls<'a> {
    fn add(&mut self, words: &[&'a str]) -> Result<()> {
        let [_, at_us, call, arguments @ ..] = words else { bail!("a field is missing") };
        self.now_us = self.now_us.max(number(at_us)?);
        if arguments.last().is_some_and(|result| result.starts_with('-')) {
            return Ok(());
        }
        match (*call, arguments) {
            ("open", [name, flags, descriptor]) => self.open(name, flags, number(descriptor)?),
            ("close", [descriptor, _]) => drop(self.open.remove(&number(descriptor)?)),
            ("read", [descriptor, len]) => {
                self.move_on(TraceOperation::Read, number(descriptor)?, number(len)?)?;
            }
            ("write", [descriptor, len]) => {
                self.move_on(TraceOperation::Write, number(descriptor)?, number(len)?)?;
            }
            ("pread", [descriptor, offset, len]) => {
                let ino = self.file(number(descriptor)?).ino;
                self.data(TraceOperation::Read, ino, number(offset)?, number(len)?)?;
            }
            ("pwrite", [descriptor, offset, len]) => {
                let ino = self.file(number(descriptor)?).ino;
                self.data(TraceOperation::Write, ino, number(offset)?, number(len)?)?;
            }
            ("fsync" | "fdatasync", [descriptor, _]) => {
                let ino = self.file(number(descriptor)?).ino;
                self.request(TraceOperation::Fsync, ino, 0, 0);
            }
            ("ftruncate", [descriptor, len]) => {
                let ino = self.file(number(descriptor)?).ino;
                self.truncate(ino, number(len)?);
            }
            ("unlink", [name, _]) => self.unlink(name),
            ("rename", [from, to, _]) => {
                if let Some(ino) = self.named.remove(from) {
                    self.unlink(to);
                    self.named.insert(to, ino);
                }
            }
            ("access" | "stat" | "stat64" | "lstat" | "lstat64" | "fstat" | "fstat64", _) => {}
            (
                "open" | "close" | "read" | "write" | "pread" | "pwrite" | "fsync" | "fdatasync"
                | "ftruncate" | "unlink" | "rename",
                _,
            ) => bail!("{call} with {} arguments", arguments.len()),
            _ => bail!("unknown call: {call}"),
        }
        Ok(())
    }

    fn open(&mut self, word: &'a str, flags: &str, descriptor: u64) {
        let has = |flag| flags.split('|').any(|one| one == flag);
        let is_new = has("O_TRUNC") || has("O_EXCL");
        let known = match name(word) {
            Some(_) => self.named.get(word).copied(),
            None => self.unnamed.get(&descriptor).copied().filter(|_| !is_new),
        };
        let ino = known.unwrap_or_else(|| self.new_file());
        match name(word) {
            Some(_) => self.named.insert(word, ino),
            None => self.unnamed.insert(descriptor, ino),
        };
        match known {
            None if is_new && has("O_CREAT") => self.request(TraceOperation::Create, ino, 0, 0),
            Some(_) if has("O_TRUNC") => self.truncate(ino, 0),
            _ => {}
        }
        let position = if has("O_APPEND") { self.lengths[ino as usize - 1] } else { 0 };
        self.open.insert(descriptor, OpenFile { ino, position });
    }

    /// Returns the file of a descriptor, which is a new one if it was opened before the recording began.
    fn file(&mut self, descriptor: u64) -> OpenFile {
        if let Some(&open) = self.open.get(&descriptor) {
            return open;
        }
        let open = OpenFile { ino: self.new_file(), position: 0 };
        self.open.insert(descriptor, open);
        open
    }

    fn new_file(&mut self) -> u64 {
        self.lengths.push(0);
        self.lengths.len() as u64
    }

    /// Adds a read or write at the position of the descriptor.
    fn move_on(&mut self, operation: TraceOperation, descriptor: u64, len: u64) -> Result<()> {
        let OpenFile { ino, position } = self.file(descriptor);
        self.data(operation, ino, position, len)?;
        self.open.insert(descriptor, OpenFile { ino, position: position + len });
        Ok(())
    }

    fn data(&mut self, operation: TraceOperation, ino: u64, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end < 1 << 62);
        let end = end.context("the request ends beyond every file")?;
        if operation == TraceOperation::Write {
            let length = &mut self.lengths[ino as usize - 1];
            *length = end.max(*length);
        }
        if len > 0 {
            self.request(operation, ino, offset, len);
        }
        Ok(())
    }

    fn truncate(&mut self, ino: u64, len: u64) {
        self.lengths[ino as usize - 1] = len;
        self.request(TraceOperation::Truncate, ino, len, 0);
    }

    fn unlink(&mut self, name: &str) {
        if let Some(ino) = self.named.remove(name) {
            self.request(TraceOperation::Unlink, ino, 0, 0);
        }
    }

    fn request(&mut self, operation: TraceOperation, ino: u64, offset: u64, len: u64) {
        let at_us = self.now_us;
        self.requests.push(TraceRequest {
            at_us,
            offset,
            len,
            ..TraceRequest::new(operation, ino)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LoadAction, RequestLoad};
    use LoadAction::{Delete, Make, Read, Sync, Truncate, Write};

    fn actions(text: &str) -> Vec<(u64, u64, LoadAction)> {
        let load = RequestLoad::parse(text).expect("a load");
        let ino = |file: u32| load.files[file as usize].ino;
        load.operations.iter().map(|one| (one.at_us, ino(one.file), one.action)).collect()
    }

    #[test]
    fn calls_move_the_position_of_their_descriptor() {
        let text = "\
1 5 open \"/a b\" O_RDWR|O_CREAT|O_TRUNC 7
2 6 write 7 100
1 8 write 7 50
3 7 pwrite 7 4096 4096
1 9 fsync 7 0
1 9 fsync 7 -1
1 10 open \"/a b\" O_WRONLY|O_APPEND 8
1 11 write 8 10
1 12 read 7 20
1 13 stat64 \"/a b\" 0
1 14 ftruncate 8 5
1 15 unlink \"/a b\" 0
1 16 close 7 0
";
        let expected = [
            (5, 1, Make),
            (6, 1, Write { offset: 0, len: 100 }),
            (8, 1, Write { offset: 100, len: 50 }),
            // The threads' lines are not in the order of their times.
            (8, 1, Write { offset: 4096, len: 4096 }),
            (9, 1, Sync),
            (11, 1, Write { offset: 8192, len: 10 }),
            (12, 1, Read { offset: 150, len: 20 }),
            (14, 1, Truncate { size: 5 }),
            (15, 1, Delete),
        ];
        assert_eq!(actions(text), expected);
    }

    #[test]
    fn without_a_name_the_descriptor_is_the_file() {
        let text = "1 0 open /data/data O_RDWR|O_CREAT 3\n1 1 write 3 9\n1 2 close 3 0\n\
                    1 3 open /data/data O_RDWR|O_CREAT 3\n1 4 write 3 9\n\
                    1 5 open /data/data O_RDWR|O_CREAT|O_EXCL 3\n1 6 write 3 9\n1 7 write 4 9\n";
        let write = Write { offset: 0, len: 9 };
        let expected = [(1, 1, write), (4, 1, write), (5, 2, Make), (6, 2, write), (7, 3, write)];
        assert_eq!(actions(text), expected);
    }

    #[test]
    fn a_renamed_file_replaces_another() {
        let text = "1 0 open \"a\" O_CREAT|O_EXCL 3\n1 1 open \"b\" O_RDWR 4\n1 2 rename \"a\" \"b\" 0\n\
                    1 3 unlink \"a\" 0\n1 4 open \"b\" O_RDWR 5\n1 5 write 5 1\n";
        let expected = [(0, 1, Make), (2, 2, Delete), (5, 1, Write { offset: 0, len: 1 })];
        assert_eq!(actions(text), expected);
    }

    #[test]
    fn a_malformed_call_names_its_line() {
        for (line, reason) in [
            ("1 5 lseek 3 0", "unknown call: lseek"),
            ("1 5 write 3", "write with 1 arguments"),
            ("1 5 write 3 x", "not a number: x"),
            ("1 5", "a field is missing"),
            ("1 5 pwrite 3 9223372036854775807 9223372036854775807", "beyond every file"),
        ] {
            let text = format!("1 0 write 3 1\n{line}\n");
            let error = format!("{:#}", RequestLoad::parse(&text).expect_err("an error"));
            assert!(error.contains("line 2") && error.contains(reason), "{error}");
        }
    }
}
