//! Races between threads: commits, writers, readers and admission.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use sfs_core::format::ROOT_INO;
use sfs_core::request::{DirectoryEntry, Seek, VolumeOptions, Work, WriteMode, XattrMode};
use sfs_core::{Error, Volume};
use sfs_device::{GatedDevice, Operation, RamDevice};

use crate::fixture::{
    NOW, Random, beside, beside_syncs, blocks_for, caller, create, fill, format, open, ram, read,
    set_size, write,
};

/// A write between the plan of a commit and its application was lost.
#[test]
fn a_write_during_a_commit_is_not_lost() {
    let device = Arc::new(RamDevice::new(256 << 8));
    format(&device, 256);
    let volume = open(&device);
    let files: Vec<u64> = (0..40).map(|i| create(&volume, &format!("f{i}"))).collect();
    beside_syncs(&volume, || {
        for round in 1..100u32 {
            for file in &files {
                let bytes = round.to_le_bytes().repeat(65_536);
                write(&volume, *file, 0, &bytes).expect("the write succeeds");
                assert!(read(&volume, *file, 0, bytes.len()) == bytes, "round {round}, {file}");
            }
        }
    });
    drop(volume.sync_all());
    drop(volume);
    let volume = open(&device);
    for file in &files {
        assert_eq!(read(&volume, *file, 0, 4), 99u32.to_le_bytes());
    }
}

/// A commit may store a small file inline in the tree. An append at that moment was lost.
#[test]
fn an_append_during_a_commit_of_a_small_file_is_not_lost() {
    let device = Arc::new(RamDevice::new(64 << 8));
    format(&device, 256);
    let volume = open(&device);
    beside_syncs(&volume, || {
        for round in 0..2000u32 {
            let file = create(&volume, &format!("f{round}"));
            volume.write(file, 0, &[1; 100], WriteMode::default(), &caller()).unwrap();
            volume.write(file, 100, &[2; 20_000], WriteMode::default(), &caller()).unwrap();
            let found = read(&volume, file, 0, 1 << 20);
            let sound = found.len() == 20_100 && found[100..].iter().all(|b| *b == 2);
            volume.unlink(ROOT_INO, format!("f{round}").as_bytes(), &caller()).unwrap();
            volume.forget(file, 1);
            while volume.work(NOW).expect("background work succeeds") == Work::More {}
            assert!(sound, "round {round}: {} bytes", found.len());
        }
    });
}

/// A commit needs more nodes at once than the cache holds, while readers trim the cache: the commit never ended.
#[test]
fn readers_do_not_evict_the_nodes_of_a_commit() {
    let device = Arc::new(RamDevice::new(512 << 8));
    format(&device, 256);
    let volume = open(&device);
    let count = 40_000;
    let inos: Vec<u64> = (0..count).map(|i| create(&volume, &format!("file{i}"))).collect();
    volume.close().unwrap();
    drop(volume);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let options =
            VolumeOptions { cache: 1 << 20, write_buffer: 1 << 30, ..VolumeOptions::default() };
        let volume = Volume::open(device, options, NOW).unwrap();
        for ino in inos.iter().step_by(2) {
            volume.write(*ino, 0, &[1; 10], WriteMode::default(), &caller()).unwrap();
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..2 {
                let (done, volume, inos) = (&done, &volume, &inos);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    while !done.load(Ordering::Relaxed) {
                        volume.attributes(inos[random.below(count) as usize]).unwrap();
                    }
                });
            }
            volume.sync_all().unwrap();
            done.store(true, Ordering::Relaxed);
        });
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("the thread ends in time");
}

/// A writer merged its bytes into a stale copy of the small file: another writer had changed the
/// file since.
#[test]
fn two_writers_of_a_small_file_do_not_undo_each_other() {
    let device = ram(64);
    let volume = open(&device);
    let file = create(&volume, "f");
    volume.write(file, 0, &[0; 100], WriteMode::default(), &caller()).unwrap();
    let writes = |writer: u64| {
        for round in 0..20_000u32 {
            let at = 10 + writer * 50;
            let bytes = round.to_le_bytes();
            volume.write(file, at, &bytes, WriteMode::default(), &caller()).unwrap();
            assert_eq!(read(&volume, file, at, 4), bytes, "writer {writer}, round {round}");
        }
    };
    beside_syncs(&volume, || {
        std::thread::scope(|scope| {
            for writer in 0..2 {
                scope.spawn(move || writes(writer));
            }
        });
    });
}

/// `link` finishes an interrupted truncation before a file gets its first name. The length came from the tree, and
/// blocks that a commit had written since were cut off.
#[test]
fn a_file_that_gets_its_first_name_during_a_commit_keeps_its_data() {
    let device = Arc::new(RamDevice::new(256 << 8));
    format(&device, 256);
    let volume = open(&device);
    beside_syncs(&volume, || {
        for no in 0..5000 {
            let name = format!("f{no}");
            let file =
                volume.make_unnamed(ROOT_INO, 0o600, &caller()).expect("the file is created").ino;
            write(&volume, file, 0, &[7; 8192]).expect("the write succeeds");
            volume.link(file, ROOT_INO, name.as_bytes(), &caller()).expect("the link succeeds");
            assert_eq!(read(&volume, file, 0, 8192), [7; 8192], "file {no}");
            volume.unlink(ROOT_INO, name.as_bytes(), &caller()).expect("the name is removed");
            volume.forget(file, 2);
        }
    });
}

/// `seek` reads the dirty blocks and the tree one after the other. A commit in between made all of a small file a hole.
#[test]
fn seek_finds_the_data_of_a_small_file_during_a_commit() {
    let volume = open(&ram(256));
    let file = create(&volume, "f");
    let look = |what| {
        set_size(&volume, file, 0).unwrap();
        volume.write(file, 0, &[7; 100], WriteMode::default(), &caller()).unwrap();
        volume.seek(file, 0, what)
    };
    beside_syncs(&volume, || {
        for round in 0..100_000 {
            assert!(matches!(look(Seek::Data), Ok(0)), "round {round}");
            assert!(matches!(look(Seek::Hole), Ok(100)), "round {round}");
        }
    });
}

/// An append that reads the block with the old end waits between its admission and its write to the
/// buffer. Other appends were admitted to the same free blocks meanwhile, and accepted data was
/// lost.
#[test]
fn concurrent_appends_are_not_admitted_to_the_same_space() {
    const BYTES: usize = 100 * 4096;
    const OLD_END: u64 = 5000;
    let device = Arc::new(GatedDevice::new(RamDevice::new(blocks_for(64))));
    format(&device, 32);
    let volume = open(&device);
    let append =
        |file: u64| volume.write(file, OLD_END, &[2; BYTES], WriteMode::default(), &caller());
    let files: Vec<u64> = (0..16).map(|no| create(&volume, &format!("f{no}"))).collect();
    for file in &files {
        volume.write(*file, 0, &[1; OLD_END as usize], WriteMode::default(), &caller()).unwrap();
    }
    volume.sync_all().unwrap();
    let rest = create(&volume, "rest");
    let count = fill(&volume, rest, 16, 128);
    // The free space is enough for one of the appends.
    set_size(&volume, rest, (count - 116) * 4096).unwrap();
    volume.sync_all().unwrap();
    device.close(Operation::Read);
    let accepted = std::thread::scope(|scope| {
        let writers: Vec<_> =
            files.iter().map(|file| scope.spawn(|| append(*file).is_ok())).collect();
        device.wait_until_reached();
        std::thread::sleep(Duration::from_millis(200));
        device.open();
        writers.into_iter().map(|writer| writer.join().unwrap()).filter(|is_ok| *is_ok).count()
    });
    assert!(accepted > 0);
    volume.sync_all().expect("accepted writes fit");
    volume.close().unwrap();
    let end = OLD_END + BYTES as u64;
    let volume = open(&device);
    let kept = files.iter().filter(|file| volume.attributes(**file).unwrap().size == end).count();
    assert_eq!(kept, accepted);
}

/// The reference was taken after the lock was released, so another thread could delete the file before.
#[test]
fn a_created_or_listed_file_exists_until_its_reference_is_dropped() {
    let volume = open(&ram(160));
    let is_there = |ino: u64| {
        let found = volume.attributes(ino);
        volume.forget(ino, 1);
        found.is_ok()
    };
    let unlink = || drop(volume.unlink(ROOT_INO, b"x", &caller()));
    beside(unlink, || {
        for round in 0..50_000 {
            assert!(is_there(create(&volume, "x")), "created, round {round}");
            unlink();
        }
    });
    let make = || {
        volume.forget(create(&volume, "x"), 1);
        unlink();
    };
    beside(make, || {
        for round in 0..50_000 {
            let mut listed = Vec::new();
            let mut each = |entry: &DirectoryEntry<'_>| {
                listed.extend(entry.inode.map(|_| entry.ino));
                true
            };
            volume.read_directory(ROOT_INO, 2, true, &mut each).expect("the listing succeeds");
            assert!(listed.into_iter().all(is_there), "listed, round {round}");
        }
    });
}

/// Fills the volume with a file, but for about `left` blocks.
fn fill_but(volume: &Volume, left: u64) {
    let rest = create(volume, "rest");
    for block in 0..volume.space().free_blocks - left {
        write(volume, rest, block, &[1; 4096]).expect("there is space");
        if block % 64 == 0 {
            volume.sync_all().expect("a RAM device does not fail");
        }
    }
    volume.sync_all().expect("a RAM device does not fail");
}

/// A thread that only overwrites needs none of the space that it is admitted to. Other writers were refused
/// because of this space.
#[test]
fn overwriting_does_not_make_others_run_out_of_space() {
    let volume = open(&ram(160));
    let over = create(&volume, "over");
    let overwrite = || write(&volume, over, 0, &[1; 64 * 4096]).expect("the overwrite succeeds");
    overwrite();
    fill_but(&volume, 140);
    overwrite();
    beside(overwrite, || {
        for _ in 0..5000 {
            volume.forget(create(&volume, "new"), 1);
            volume.unlink(ROOT_INO, b"new", &caller()).expect("the file exists");
        }
    });
}

/// The blocks of a writer counted twice for a moment, as dirty and as admitted.
#[test]
fn concurrent_appends_that_fit_are_not_refused() {
    let volume = open(&ram(160));
    fill_but(&volume, 150);
    let files = ["a", "b"].map(|name| create(&volume, name));
    let append = |file: u64| write(&volume, file, 0, &[1; 30 * 4096]).expect("the data fits");
    files.into_iter().for_each(append);
    let again = |file: u64| {
        set_size(&volume, file, 0).expect("the truncation succeeds");
        append(file);
    };
    beside(|| again(files[0]), || (0..40_000).for_each(|_| again(files[1])));
}

/// Two threads that set attributes both found room for a name, and the names together exceeded the limit: listxattr(2)
/// failed from then on.
#[test]
fn concurrent_setters_of_attributes_stay_within_the_sum() {
    let volume = open(&ram(400));
    let file = create(&volume, "f");
    let set = |name: &str| {
        let set = volume.set_xattr(file, name.as_bytes(), b"", XattrMode::Any, &caller());
        assert!(matches!(set, Ok(()) | Err(Error::NoSpace)), "{name}: {set:?}");
        set.is_ok()
    };
    let remove = |name: &str| {
        volume.remove_xattr(file, name.as_bytes(), &caller()).expect("the attribute is there");
    };
    let long = |no: usize| format!("user.{no:0>240}");
    let fitting = (0..).take_while(|no| set(&long(*no))).count();
    assert!(fitting > 200, "{fitting} names");
    assert!(set(&long(0)), "an attribute that is there can be replaced");
    for round in 0..300 {
        remove(&long(round % fitting));
        let start = Barrier::new(2);
        let names = [long(1000), long(1001)];
        let done = std::thread::scope(|scope| {
            let setters = names.each_ref().map(|name| {
                scope.spawn(|| {
                    start.wait();
                    set(name)
                })
            });
            setters.map(|setter| setter.join().expect("no panic"))
        });
        assert_eq!(done.iter().filter(|done| **done).count(), 1, "round {round}: {done:?}");
        names.iter().zip(done).filter(|(_, done)| *done).for_each(|(name, _)| remove(name));
        assert!(set(&long(round % fitting)), "there is room again");
    }
}

/// A writer that had waited for other admissions was counted only after the next writers had been admitted.
#[test]
fn waiting_writers_are_not_admitted_to_the_same_space() {
    // With more space the first append only waits; with less space it also has to commit the
    // overwritten data.
    [107, 101].into_iter().for_each(assert_admits_one);
}

/// Asserts that just one of three appends beside an overwrite is admitted, on a volume with about
/// `left` free blocks.
fn assert_admits_one(left: u64) {
    let device = Arc::new(GatedDevice::new(RamDevice::new(blocks_for(160))));
    format(&device, 32);
    let volume = open(&device);
    let over = create(&volume, "over");
    let overwrite = |at: u64, bytes: &[u8]| {
        volume
            .write(over, at, bytes, WriteMode::default(), &caller())
            .expect("an overwrite is admitted");
    };
    overwrite(0, &[1; 64 * 4096]);
    let files = ["a", "b", "c"].map(|name| create(&volume, name));
    let append = |file: u64| write(&volume, file, 0, &[2; 30 * 4096]).is_ok();
    let cut = || {
        files
            .into_iter()
            .for_each(|file| set_size(&volume, file, 0).expect("the truncation succeeds"))
    };
    fill_but(&volume, left);
    let again = || {
        cut();
        volume.sync_all().expect("a RAM device does not fail");
        overwrite(4096, &[4; 22 * 4096]);
    };
    again();
    assert_eq!(files.map(append), [true, false, false], "there is space for one");
    for round in 0..50 {
        again();
        device.close(Operation::Read);
        let admitted = std::thread::scope(|scope| {
            scope.spawn(|| overwrite(100, &[5; 20 * 4096]));
            device.wait_until_reached();
            // The first append waits for the overwrite, and the other appends for the first.
            let writer = |file: u64| scope.spawn(move || append(file));
            let first = writer(files[0]);
            std::thread::sleep(Duration::from_millis(3));
            let others = [writer(files[1]), writer(files[2])];
            std::thread::sleep(Duration::from_millis(3));
            device.open();
            let [second, third] = others;
            [first, second, third].map(|writer| writer.join().expect("no panic"))
        });
        let count = admitted.iter().filter(|admitted| **admitted).count();
        assert_eq!(count, 1, "{left} blocks, round {round}: {admitted:?}");
    }
}
