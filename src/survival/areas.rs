//! The memory of the records: a file without a name, in which two areas take turns.
//!
//! Records are appended to the current area. Each area has a mark, which is the end of the last whole record in it: the mark is
//! written after the record, in one word, so a process that is killed in between leaves no part of a record. When an area is full,
//! the other one becomes current, and the older one is discarded once everything that it has is in the log.
//!
//! The begin of each area is mapped, and its memory is there from the start: a record takes no system call. What does not fit
//! there, as after very many references, is written by one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::process::{Resource, getrlimit};
use sfs_device::SharedWindow;

/// Bytes of records after which an area is full, without its first ones: room for sixteen of the longest writes.
const FULL_LEN: u64 = 16 << 20;

/// Size in bytes of the place of an area. Only what is written takes memory. The first records are as many as there are references.
const PLACE_LEN: u64 = 1 << 32;

/// Size in bytes of the mapped begin of an area: with as many references as small machines have, and the last replies.
const MAPPED_LEN: u64 = FULL_LEN + (1 << 20);

/// Memory of both areas in bytes, without what is not mapped.
pub(crate) const MEMORY_BYTES: u64 = 2 * MAPPED_LEN;

/// Size in bytes of the head of the file, in front of the areas.
const HEAD_LEN: u64 = 4096;

/// Size in bytes of the head of an area: its number, its mark, and the end of its first records.
const AREA_HEAD_LEN: u64 = 24;

/// Offsets of its words in the head of an area.
const NUMBER: usize = 0;
const MARK: usize = 8;
const BEGUN: usize = 16;

/// Size in bytes of the head of a record: its length, and its kind.
const RECORD_HEAD_LEN: usize = 8;

/// First word of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"sfs-rec1");

/// First word of a file whose records are not complete.
const INCOMPLETE: u64 = 0;

/// First word of the file of a volume that must not be written any more.
const STOPPED: u64 = u64::from_le_bytes(*b"sfs-stop");

/// Reason why nobody may go on with the records. It stays one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Useless {
    /// Records are missing.
    Incomplete,
    /// The volume was stopped: a write has failed, or it was shut down.
    Stopped,
}

impl std::fmt::Display for Useless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Incomplete => "the records of the daemon are not complete",
            Self::Stopped => "the volume was stopped",
        })
    }
}

/// Returns why the records in `file` are of no use, if they are not.
pub(crate) fn uselessness(file: &File) -> io::Result<Option<Useless>> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 0)?;
    Ok(match u64::from_le_bytes(word) {
        MAGIC => None,
        STOPPED => Some(Useless::Stopped),
        _ => Some(Useless::Incomplete),
    })
}

/// The two areas.
#[derive(Debug)]
pub(crate) struct Areas {
    file: File,
    /// The mapped begins of both places.
    mapped: [SharedWindow; 2],
    lens: Lens,
    /// Number of the current area in their order; odd numbers are in the second place.
    number: u64,
    /// Mark of the current area: offset in the area at which the next record begins.
    mark: u64,
    /// End of its first records, if those that came later and count as first ones were there.
    begun: u64,
    /// `true` while the area before is there.
    has_older: bool,
}

/// Lengths in bytes of the place of an area, of its mapped begin, and of the records that fill it.
#[derive(Clone, Copy, Debug)]
struct Lens {
    place: u64,
    mapped: u64,
    full: u64,
}

const LENS: Lens = Lens { place: PLACE_LEN, mapped: MAPPED_LEN, full: FULL_LEN };

impl Lens {
    /// Returns the place of area `number` in the file.
    fn start(self, number: u64) -> u64 {
        HEAD_LEN + number % 2 * self.place
    }

    /// Maps the begins of both places of `file`, which is as long as both.
    fn map(self, file: &File) -> io::Result<[SharedWindow; 2]> {
        let window = |place| SharedWindow::new(file, self.start(place), self.mapped as usize);
        Ok([window(0)?, window(1)?])
    }
}

/// Bytes of a record, with its kind.
pub(crate) type StoredRecord = (u32, Vec<u8>);

impl Areas {
    /// Makes areas without a record.
    ///
    /// # Errors
    ///
    /// There is no memory, or the process may not make a file of this length.
    pub(crate) fn new() -> io::Result<Self> {
        // The signal of the limit would end the process.
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if limit < HEAD_LEN + 2 * LENS.place {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let areas = Self::with_lens(File::from(memfd_create("sfs-records", flags)?), LENS)?;
        fcntl_add_seals(&areas.file, SealFlags::SHRINK)?;
        Ok(areas)
    }

    fn with_lens(file: File, lens: Lens) -> io::Result<Self> {
        file.set_len(HEAD_LEN + 2 * lens.place)?;
        let mapped = lens.map(&file)?;
        let mut areas = Self { file, mapped, lens, number: 0, mark: 0, begun: 0, has_older: false };
        areas.begin(2, &[])?;
        areas.write_first_word(MAGIC)?;
        Ok(areas)
    }

    /// Opens the areas in `file`, and returns all records in their order.
    ///
    /// # Errors
    ///
    /// `InvalidData` if records are missing; errors of the system.
    pub(crate) fn open(file: File) -> io::Result<(Self, Vec<StoredRecord>)> {
        Self::open_with_lens(file, LENS)
    }

    fn open_with_lens(file: File, lens: Lens) -> io::Result<(Self, Vec<StoredRecord>)> {
        if let Some(why) = uselessness(&file)? {
            return Err(io::Error::new(io::ErrorKind::InvalidData, why.to_string()));
        }
        let mapped = lens.map(&file)?;
        let areas = Self { file, mapped, lens, number: 0, mark: 0, begun: 0, has_older: false };
        let mut found =
            [(areas.read_word(areas.start(0))?, 0), (areas.read_word(areas.start(1))?, 0)];
        for (number, mark) in &mut found {
            *mark = areas.read_word(areas.start(*number) + MARK as u64)?;
        }
        found.sort_unstable();
        let [(older, older_mark), (number, mark)] = found;
        let mut records = Vec::new();
        for (number, mark) in [(older, older_mark), (number, mark)] {
            if number > 0 {
                areas.read_area(number, mark, &mut records)?;
            }
        }
        let begun = areas.read_word(areas.start(number) + BEGUN as u64)?;
        Ok((Self { number, mark, begun, has_older: older > 0, ..areas }, records))
    }

    fn read_area(&self, number: u64, mark: u64, records: &mut Vec<StoredRecord>) -> io::Result<()> {
        let len = mark.checked_sub(AREA_HEAD_LEN).filter(|_| mark <= self.lens.place);
        let mut bytes = vec![0; len.ok_or(io::ErrorKind::InvalidData)? as usize];
        self.file.read_exact_at(&mut bytes, self.start(number) + AREA_HEAD_LEN)?;
        let mut rest = &bytes[..];
        while let Some((head, after)) = rest.split_first_chunk::<RECORD_HEAD_LEN>() {
            let [l0, l1, l2, l3, k0, k1, k2, k3] = *head;
            let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            let body = after.get(..len).ok_or(io::ErrorKind::InvalidData)?;
            records.push((u32::from_le_bytes([k0, k1, k2, k3]), body.to_vec()));
            rest = &after[len..];
        }
        Ok(())
    }

    fn start(&self, number: u64) -> u64 {
        self.lens.start(number)
    }

    fn read_word(&self, at: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, at)?;
        Ok(u64::from_le_bytes(word))
    }

    fn write_first_word(&self, word: u64) -> io::Result<()> {
        self.file.write_all_at(&word.to_le_bytes(), 0)
    }

    /// Writes a word of the head of area `number`, after everything that was written before.
    fn write_word(&mut self, number: u64, at: usize, word: u64) {
        self.mapped[(number % 2) as usize].publish(at, word);
    }

    /// Writes `bytes` at offset `at` of the current area.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if at + bytes.len() as u64 <= self.lens.mapped {
            self.mapped[(self.number % 2) as usize].write(at as usize, bytes);
            return Ok(());
        }
        self.file.write_all_at(bytes, self.start(self.number) + at)
    }

    /// Makes area `number` current, with these records. Whoever opens the file finds all of them, or not the area.
    fn begin(&mut self, number: u64, records: &[StoredRecord]) -> io::Result<()> {
        self.write_word(number, MARK, AREA_HEAD_LEN);
        (self.number, self.mark) = (number, AREA_HEAD_LEN);
        for (kind, bytes) in records {
            self.append(*kind, [bytes])?;
        }
        self.begun = self.mark;
        self.write_word(number, BEGUN, self.begun);
        self.write_word(number, NUMBER, number);
        Ok(())
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the number of the current area: larger than those of all before.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether the area before the current one is still there.
    pub(crate) fn has_older(&self) -> bool {
        self.has_older
    }

    /// Returns whether the current area is not full with a record of `len` bytes more.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.mark - self.begun + (RECORD_HEAD_LEN + len) as u64 <= self.lens.full
    }

    /// Returns the end of the last record of the current area.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// Counts `len` bytes of the last records as first ones, which do not fill the area.
    pub(crate) fn add_first(&mut self, len: u64) {
        self.begun += len;
        self.write_word(self.number, BEGUN, self.begun);
    }

    /// Appends a record: all of it, or nothing. A full area takes it as well.
    ///
    /// # Errors
    ///
    /// `StorageFull` without room; errors of the system.
    pub(crate) fn append<const N: usize>(
        &mut self,
        kind: u32,
        parts: [&[u8]; N],
    ) -> io::Result<()> {
        let len = parts.iter().map(|bytes| bytes.len()).sum::<usize>();
        let mark = self.mark + (RECORD_HEAD_LEN + len) as u64;
        if mark > self.lens.place {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut head = [0; RECORD_HEAD_LEN];
        head[..4].copy_from_slice(&u32::try_from(len).map_err(io::Error::other)?.to_le_bytes());
        head[4..].copy_from_slice(&kind.to_le_bytes());
        let mut at = self.mark;
        for bytes in [&head[..]].into_iter().chain(parts) {
            self.write(at, bytes)?;
            at += bytes.len() as u64;
        }
        self.write_word(self.number, MARK, mark);
        self.mark = mark;
        Ok(())
    }

    /// Makes the other area current, which must have been discarded, with these records.
    ///
    /// # Errors
    ///
    /// After any error but that of an area that is not discarded the areas are of no use.
    pub(crate) fn switch(&mut self, records: &[StoredRecord]) -> io::Result<()> {
        if self.has_older {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.begin(self.number + 1, records)?;
        self.has_older = true;
        Ok(())
    }

    /// Discards the area before the current one.
    pub(crate) fn discard_older(&mut self) {
        self.write_word(self.number + 1, NUMBER, 0);
        self.has_older = false;
        // The mapped memory is used again, and that of many references maybe never.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let Lens { place, mapped, .. } = self.lens;
        if mapped < place {
            let rest = self.start(self.number + 1) + mapped;
            let _ = fallocate(&self.file, flags, rest, place - mapped);
        }
    }

    /// Notes why nobody may go on, for whoever opens the file.
    pub(crate) fn give_up(&self, why: Useless) -> io::Result<()> {
        self.write_first_word(if why == Useless::Stopped { STOPPED } else { INCOMPLETE })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Records end in the mapped begin, behind it, and in both.
    const LENS: Lens = Lens { place: 512, mapped: 200, full: 240 };

    fn reopened(areas: &Areas) -> (Areas, Vec<StoredRecord>) {
        let file = areas.file.try_clone().expect("a file");
        Areas::open_with_lens(file, LENS).expect("the areas are whole")
    }

    fn new() -> Areas {
        Areas::with_lens(tempfile::tempfile().expect("a file"), LENS).expect("room")
    }

    fn kinds(areas: &Areas) -> Vec<u32> {
        reopened(areas).1.into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn records_are_found_in_their_order() {
        let mut areas = new();
        assert_eq!(reopened(&areas).1, []);
        areas.append(1, [b"one", b""]).expect("room");
        areas.append(2, [b"tw", b"o"]).expect("room");
        areas.append(3, [b"", b""]).expect("room");
        let expected = [(1, b"one".to_vec()), (2, b"two".to_vec()), (3, Vec::new())];
        let (mut areas, found) = reopened(&areas);
        assert_eq!(found, expected);
        areas.append(4, [b"four", b""]).expect("another process goes on");
        assert_eq!(kinds(&areas), [1, 2, 3, 4]);
    }

    /// Whatever part of a record was written, it is not there before its mark.
    #[test]
    fn a_part_of_a_record_is_none() {
        let mut areas = new();
        areas.append(1, [b"whole", b""]).expect("room");
        let at = areas.start(areas.number) + areas.mark;
        for len in 0..20 {
            let torn = [12, 0, 0, 0, 2, 0, 0, 0].iter().chain(&[7; 12]).copied();
            let torn: Vec<u8> = torn.take(len).collect();
            areas.file.write_all_at(&torn, at).expect("room");
            assert_eq!(kinds(&areas), [1], "{len} bytes");
        }
        areas.append(3, [b"next", b""]).expect("room");
        assert_eq!(kinds(&areas), [1, 3]);
    }

    #[test]
    fn the_areas_take_turns() {
        let mut areas = new();
        let mut appended = 0;
        while areas.has_room(20) {
            areas.append(appended, [&[0; 20], b""]).expect("room");
            appended += 1;
        }
        assert_eq!(appended, LENS.full as u32 / 28);
        areas.append(appended, [&[0; 20], b""]).expect("a reply has room in a full area");
        appended += 1;
        let full = areas.append(9, [&[0; 280], b""]).expect_err("the place has an end");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        areas.switch(&[]).expect("the other one is free");
        areas.append(100, [b"in the second", b""]).expect("room");
        areas.switch(&[]).expect_err("the first one is needed");
        assert_eq!(kinds(&areas), (0..appended).chain([100]).collect::<Vec<_>>());
        assert!(reopened(&areas).0.has_older());
        for round in 101..105 {
            areas.discard_older();
            assert_eq!(kinds(&areas), [round - 1]);
            assert!(!reopened(&areas).0.has_older());
            areas.switch(&[]).expect("the other one is free");
            assert_eq!(kinds(&areas), [round - 1], "the new one has no records yet");
            areas.append(round, [b"next", b""]).expect("room");
            assert_eq!(kinds(&areas), [round - 1, round]);
        }
    }

    /// Regression: a process that was killed while it wrote the first records of an area left a part of them.
    #[test]
    fn an_area_begins_with_all_its_first_records() {
        let mut areas = new();
        areas.append(1, [b"one", b""]).expect("room");
        let too_many = vec![(2, vec![0; 20]); LENS.place as usize / 20];
        areas.switch(&too_many).expect_err("they do not fit");
        assert_eq!(kinds(&areas), [1], "some were written");
        let mut areas = reopened(&areas).0;
        areas.switch(&[(2, b"a".to_vec()), (3, b"b".to_vec())]).expect("room");
        assert_eq!(kinds(&areas), [1, 2, 3]);
    }

    /// Regression: an area that begins with many references was full at once, or had no room for them.
    #[test]
    fn first_records_do_not_fill_an_area() {
        let mut areas = new();
        areas.switch(&[(1, vec![0; 250])]).expect("they may be longer than what fills an area");
        assert!(areas.has_room(200) && reopened(&areas).0.has_room(200));
        areas.append(2, [&[0; 200], b""]).expect("room");
        assert!(!areas.has_room(40) && !reopened(&areas).0.has_room(40));
        assert_eq!(kinds(&areas), [1, 2]);
    }

    #[test]
    fn missing_records_are_known() {
        let mut areas = new();
        areas.append(1, [b"one", b""]).expect("room");
        areas.give_up(Useless::Incomplete).expect("a file");
        let file = areas.file.try_clone().expect("a file");
        let error = Areas::open_with_lens(file, LENS).expect_err("records are missing");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    /// Regression: the memory of many references stayed for ever.
    #[test]
    fn a_discarded_area_takes_no_memory_beyond_what_is_mapped() {
        let mut areas = Areas::new().expect("memory");
        let taken = |areas: &Areas| areas.file.metadata().expect("a file").blocks() * 512;
        let before = taken(&areas);
        assert!((MEMORY_BYTES..MEMORY_BYTES + (1 << 20)).contains(&before), "{before}");
        let many = (1, vec![1; MAPPED_LEN as usize + (4 << 20)]);
        areas.switch(&[many]).expect("room");
        assert!(taken(&areas) > before + (4 << 20));
        areas.discard_older();
        areas.switch(&[]).expect("room");
        areas.discard_older();
        assert!(taken(&areas) < before + (1 << 20), "{}", taken(&areas));
    }
}
