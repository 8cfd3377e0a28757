//! The bytes of every structure, as docs/FORMAT.md states them.
//!
//! The constants were made from the document, not by the code. A failure means that the format has changed, which needs
//! a new version and not new constants.

use sfs_core::format::*;
use sfs_device::BLOCK_SIZE;

const VOLUME: u64 = 0x0807_0605_0403_0201;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(golden: &str) -> Vec<u8> {
    let digits: String = golden.split_whitespace().collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn expect(what: &str, bytes: &[u8], golden: &str) {
    assert_eq!(hex(bytes), golden.split_whitespace().collect::<String>(), "{what}");
}

fn layout() -> Layout {
    Layout::new(4096, 32, 0).expect("a layout")
}

/// The bytes of version 1.
const SUPERBLOCK_1: &str = "\
     5346532d6c6f670a aee534e501000000 0000000000000000 0102030405060708 \
     090a0b0c0d0e0f10 676f6c64656e0000 0000000000000000 0000000000000000 \
     0000000000000000 0000000000000000 0000000000000000 0000000000000000 \
     0000000000000000 0010000000000000 2000000000000000 200000007e000000 \
     1000000000000000 e00f000000000000 ff0f000000000000 2211000000000000 \
     4433000000000000 feffffffffffffff ffc99a3b00000000";

const SUPERBLOCK: &str = "\
     5346532d6c6f670a 3309407a02000000 0000000000000000 0102030405060708 \
     090a0b0c0d0e0f10 676f6c64656e0000 0000000000000000 0000000000000000 \
     0000000000000000 0000000000000000 0000000000000000 0000000000000000 \
     0000000000000000 0010000000000000 2000000000000000 200000007e000000 \
     1000000000000000 e00f000000000000 ff0f000000000000 2211000000000000 \
     4433000000000000 feffffffffffffff ffc99a3b00000000 0100000000000080 \
     1000000000000000 0300000000000000 0500000003000000 4d00000000000000 \
     f7ffffffffffffff";

/// The bytes of version 1, and of version 2 without extensions.
const CHECKPOINT: &str = "\
     534653704ab5e3d3 0102030405060708 1000000000000000 8000000000000000 \
     0200000000000000 0300000000000000 0706050422000000 0000000017161514 \
     0110000000000000 0002000000000000 0000010000000500 0000020700000020 \
     0000000900000000 0000000100000000 0000000100000000 0000007003000000 \
     00000000eeeeee01 0a00000000000000 0b00000000000000 0c00000000000000";

/// The checkpoint with three extensions.
const CHECKPOINT_EXTENDED: &str = "\
     53465370dcd038bf 0102030405060708 1000000000000000 800000001d000000 \
     0200000000000000 0300000000000000 0706050422000000 0000000017161514 \
     0110000000000000 0002000000000000 0000010000000500 0000020700000020 \
     0000000900000000 0000000100000000 0000000100000000 0000007003000000 \
     00000000eeeeee01 0a00000000000000 0b00000000000000 0c00000000000000 \
     8403010003000000 0102038503020000 0000008603030002 0000000405";

const CHUNK: &str = "\
     534653636a45bbde 0102030405060708 0700000000000000 4000000000000000 \
     0d0c0b0a02000000 0200000028000000 0301000000000000 0000000000000000 \
     1100000000000000 05000000bbaa0000 2700000006000100 0000000000000000 \
     00000000ddcc0000 0000000000000200 dead000000000000 0000000000000000";

/// A chunk of a batch with tagged changes.
const CHUNK_TAGGED: &str = "\
     53465363e2472b96 0102030405060708 0700000000000000 4000000000000000 \
     0d0c0b0a02000000 0200000028000000 0303000000000000 0000000000000000 \
     1100000000000000 05000000bbaa0000 2700000006000100 0000000000000000 \
     00000000ddcc0000 0000000000000200 dead000000000000 0000000000000000";

/// Changes of version 1.
const NEXT_INO: &str = "\
     0000000012000000 00000000";

const UNMAP: &str = "\
     0100000011000000 0000000004000000 05000000";

const PUT: &str = "\
     0200000011000000 0000000001020100 0000000000020000 00000000000908";

const DELETE: &str = "\
     0300000011000000 0000000001020100 0000000000";

const RELEASE: &str = "\
     0400000007000000 0807060504030201";

const NODE: &str = "\
     5346536e237f5a45 0102030405060708 4d00000000000000 0200000000000000 \
     0403020000000000 0000000000000000 0000000000000000 0000000000000000";

const POINTER: &str = "\
     4d00000000000000 237f5a45";

const INODE: &str = "\
     a481000001000000 0200000003000000 0400000003000000 0500000000000000 \
     0600000000000000 0700000000000000 0800000000000000 f401000009000000 \
     00000000f4010000 0a00000000000000 f4010000f5ffffff fffffffff4010000 \
     0c00000000000000 0d00000000000000";

const MAPPING: &str = "\
     020000809a785634 1201030004000000 bbaa000001000000 0001ffff05000000 \
     02000000";

/// A run with an extension record: tag 9, to be skipped, three bytes.
const MAPPING_EXTENDED: &str = "\
     020000809a785634 1201030004000000 bbaa000001000000 0001ffff05000000 \
     0200000009010300 070809";

const KEY: &str = "\
     1100000000000000 0401000000000000 00";

const USAGE: &str = "\
     0000000001000000 0000000000000000 0000000000000000 0000000000000000 \
     0000000000000000 0300000003020000 0400000000000000 0500000000000000 \
     0700000008000000 0600000000000000";

const MAP: &str = "\
     05000000 1100000000000000 04000000 03000000 9a78563412000000";

/// Changes with kind, class and length.
const NEXT_INO_TAGGED: &str = "0000020008000000 1200000000000000";

const UNMAP_TAGGED: &str = "0100020010000000 1100000000000000 0400000005000000";

const PUT_TAGGED: &str = "\
     020002001b000000 1100000000000000 0102010000000000 0002000000000000 \
     000908";

const DELETE_TAGGED: &str = "0300020011000000 1100000000000000 0102010000000000 00";

const RELEASE_TAGGED: &str = "040002000c000000 0700000008070605 04030201";

const MAP_TAGGED: &str = "\
     0500020018000000 1100000000000000 0400000003000000 9a78563412000000";

const PLACED: &str = "\
     02000000 9a785634 12 02 0000 00000000 00000000";

const USAGE_KEY: &str = "\
     0000000000000000 0702000000000000 00";

/// `u::rw-,u:1000:r-x,g::r--,g:100:-wx,m::rwx,o::--x`: the value of the extended attribute in Linux.
const ACCESS_LIST: &str = "\
     02000000 01000600ffffffff 02000500e8030000 04000400ffffffff \
     0800030064000000 10000700ffffffff 20000100ffffffff";

fn golden_superblock() -> Superblock {
    Superblock {
        uuid: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        label: Label::new("golden").expect("a label"),
        layout: layout(),
        hash_key: [0x1122, 0x3344],
        data_layout: Default::default(),
        created: Timestamp { secs: -2, nanos: 999_999_999 },
        ..Superblock::new(layout())
    }
}

#[test]
fn superblock() {
    let superblock = Superblock {
        generation: 3,
        features: Features { compatible: 1 | 1 << 63, read_only_compatible: 0x10, incompatible: 0 },
        tick_shift: 5,
        failure: Some(Failure { kind: ErrorKind::Data, at: 77, secs: -9 }),
        ..golden_superblock()
    };
    let bytes = superblock.encode();
    expect("superblock", &bytes[..232], SUPERBLOCK);
    assert_eq!(bytes[232..], [0; BLOCK_SIZE - 232]);
    assert_eq!(Superblock::decode(&bytes, 4), Ok(superblock.clone()));

    let cached = Superblock { cache_uuid: [0xc0; 16], epoch: [0xe0; 16], ..superblock.clone() };
    let bytes = cached.encode();
    assert_eq!((&bytes[232..248], &bytes[248..264]), (&[0xc0; 16][..], &[0xe0; 16][..]));
    assert_eq!(Superblock::decode(&bytes, 4), Ok(cached));

    // Bytes of a newer program after the known fields are preserved.
    let newer = Superblock { unknown: vec![0, 9, 8], ..superblock };
    let bytes = newer.encode();
    assert_eq!(bytes[264..268], [0, 9, 8, 0]);
    assert_eq!(Superblock::decode(&bytes, 4), Ok(newer.clone()));
    assert_eq!(newer.next_generation().expect("a next one").unknown, newer.unknown);
}

/// A superblock of version 1 decodes. Later fields have the values that version 1 implied.
#[test]
fn superblock_of_version_1() {
    let mut bytes = [0; BLOCK_SIZE];
    bytes[..184].copy_from_slice(&unhex(SUPERBLOCK_1));
    let expected = Superblock { version: 1, generation: 0, tick_shift: 0, ..golden_superblock() };
    assert_eq!(Superblock::decode(&bytes, 4), Ok(expected.clone()));
    let next = expected.next_generation().expect("a next generation");
    assert_eq!(next, Superblock { version: 2, generation: 1, ..expected });
    let large = Layout::new(1 << 30, 1024, 0).expect("a layout");
    assert_eq!(
        Superblock::new(large).tick_shift,
        11,
        "2^29 blocks and more are 2^18 ticks and more"
    );
}

/// A program that does not know data layouts finds an unknown feature and refuses the volume.
#[test]
fn superblock_of_data_in_place() {
    let superblock = Superblock {
        uuid: [7; 16],
        label: Label::NONE,
        layout: layout(),
        hash_key: [0, 0],
        data_layout: DataLayout::BlockGroup,
        features: Features { incompatible: 2, ..Features::default() },
        created: Timestamp::default(),
        ..Superblock::new(layout())
    };
    let bytes = superblock.encode();
    assert_eq!((bytes[16], bytes[180]), (2, 4));
    assert_eq!(superblock.volume(), 0xb7f4_7f18_355c_aefb);
    assert_eq!(Superblock::decode(&bytes, 4), Ok(superblock));
}

#[test]
fn checkpoint() {
    let record = CheckpointRecord {
        number: 2,
        next_sequence: 3,
        previous: 0x0405_0607,
        root_address: 34,
        root_checksum: 0x1415_1617,
        root_level: 1,
        next_ino: 16,
        heads: vec![
            HeadRecord { head: Head::METADATA, segment: 1, next_block: 5 },
            HeadRecord { head: Head(2), segment: 7, next_block: 32 },
        ],
        blocks_written: 9,
        policies: vec![PolicyRecord { name: "p".into(), state: vec![0xee; 3] }],
        unmounted: true,
        mount_count: 10,
        user_bytes_written: 11,
        device_bytes_written: 12,
        extensions: Default::default(),
    };
    let bytes = record.encode(VOLUME, 16);
    assert_eq!(bytes.len(), BLOCK_SIZE);
    expect("checkpoint", &bytes[..160], CHECKPOINT);
    assert_eq!(bytes[160..], [0; BLOCK_SIZE - 160]);
    assert_eq!(CheckpointRecord::decode(&bytes, VOLUME, 16), Ok(record.clone()));

    let mut extensions = Extensions::default();
    extensions.set(Extension { tag: 902, class: ExtensionClass::ReadOnly, bytes: vec![4, 5] });
    extensions.set(Extension { tag: 900, class: ExtensionClass::Keep, bytes: vec![1, 2, 3] });
    extensions.set(Extension { tag: 901, class: ExtensionClass::Drop, bytes: vec![] });
    let record = CheckpointRecord { extensions, ..record };
    let bytes = record.encode(VOLUME, 16);
    expect("checkpoint with extensions", &bytes[..189], CHECKPOINT_EXTENDED);
    assert_eq!(bytes[189..], [0; BLOCK_SIZE - 189]);
    assert_eq!(CheckpointRecord::decode(&bytes, VOLUME, 16), Ok(record));
}

#[test]
fn chunk() {
    let entries = [
        SummaryEntry::Data { ino: 17, block: 5, checksum: 0xaabb, history: History::plain(6, 39) },
        SummaryEntry::Node { checksum: 0xccdd },
    ];
    for (form, golden) in [(DeltaForm::Plain, CHUNK), (DeltaForm::Tagged, CHUNK_TAGGED)] {
        let header = ChunkHeader {
            volume: VOLUME,
            sequence: 7,
            address: 64,
            previous: 0x0a0b_0c0d,
            time: 40,
            head: Head(3),
            end: true,
            form,
        };
        let mut bytes = [0xff; BLOCK_SIZE];
        let checksum = ChunkSummary::encode(&header, &entries, &[0xde, 0xad], &mut bytes);
        expect("chunk", &bytes[..128], golden);
        assert_eq!(bytes[160..], [0; BLOCK_SIZE - 160]);
        let summary =
            ChunkSummary { header, entries: entries.to_vec(), delta: vec![0xde, 0xad], checksum };
        assert_eq!(ChunkSummary::decode(&bytes, VOLUME, 64), Ok(summary));
    }
}

fn changes() -> [Change; 6] {
    let key = Key { ino: 17, kind: 1, offset: 0x0102 }.encode();
    [
        Change::NextIno(18),
        Change::Unmap { ino: 17, first: 4, last: 5 },
        Change::Put { key, value: vec![9, 8] },
        Change::Delete { key },
        Change::Release { segment: 7, stamp: 0x0102_0304_0506_0708 },
        Change::Map { ino: 17, block: 4, count: 3, address: 0x12_3456_789a },
    ]
}

/// Version 1 wrote plain changes, which every version reads.
#[test]
fn plain_delta() {
    let goldens = [NEXT_INO, UNMAP, PUT, DELETE, RELEASE, MAP];
    let all: Vec<u8> = goldens.into_iter().flat_map(unhex).collect();
    assert_eq!(Change::decode_all(&all, DeltaForm::Plain, 0), Ok(changes().to_vec()));
}

#[test]
fn delta() {
    let goldens =
        [NEXT_INO_TAGGED, UNMAP_TAGGED, PUT_TAGGED, DELETE_TAGGED, RELEASE_TAGGED, MAP_TAGGED];
    let mut all = Vec::new();
    for (change, golden) in changes().iter().zip(goldens) {
        let mut bytes = Vec::new();
        change.append(&mut bytes);
        expect("change", &bytes, golden);
        all.extend(bytes);
    }
    assert_eq!(Change::decode_all(&all, DeltaForm::Tagged, 0), Ok(changes().to_vec()));
}

/// Returns a change of kind `kind` and class `class`.
fn later(kind: u16, class: u8, fields: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([class, 0]);
    bytes.extend((fields.len() as u32).to_le_bytes());
    bytes.extend(fields);
    bytes
}

#[test]
fn changes_of_a_later_program() {
    let decode = |bytes: &[u8]| Change::decode_all(bytes, DeltaForm::Tagged, 5);
    let next_ino = unhex(NEXT_INO_TAGGED);
    let skipped = [later(6, 1, &[1; 9]), next_ino.clone(), later(0x1234, 1, &[])].concat();
    assert_eq!(decode(&skipped), Ok(vec![Change::NextIno(18)]));
    let refused = [next_ino, later(0x1234, 2, &[7])].concat();
    let what = Incompatibility::Change { kind: 0x1234, at: 5 };
    assert_eq!(decode(&refused), Err(what.into()));
    let longer = later(0, 2, &[18, 0, 0, 0, 0, 0, 0, 0, 99, 98]);
    assert_eq!(decode(&longer), Ok(vec![Change::NextIno(18)]));
    let wrong = Corruption::in_block(Structure::Delta, 5, CorruptionKind::Value);
    for class in [0, 3, 255] {
        assert_eq!(decode(&later(6, class, &[])), Err(wrong.into()), "class {class}");
        assert_eq!(decode(&later(0, class, &[0; 8])), Err(wrong.into()), "class {class}");
    }
    let short = later(0, 2, &[18, 0, 0, 0, 0, 0, 0]);
    assert_eq!(decode(&short), Err(wrong.into()), "the fields are too short");
    let cut = later(6, 1, &[1; 9]);
    (1..cut.len()).for_each(|len| assert_eq!(decode(&cut[..len]), Err(wrong.into()), "{len}"));
}

#[test]
fn node() {
    let mut bytes = [0; BLOCK_SIZE];
    bytes[4095] = 1;
    let header = NodeHeader { level: 2, item_count: 0x0304 };
    let checksum = header.seal(&mut bytes, VOLUME, 77, 2);
    expect("node header", &bytes[..64], NODE);
    let pointer = NodePointer { address: 77, checksum };
    assert_eq!(NodeHeader::verify(&bytes, VOLUME, pointer), Ok(header));
    expect("node pointer", &pointer.encode(), POINTER);
    assert_eq!(NodePointer::decode(&pointer.encode()), pointer);
}

#[test]
fn inode() {
    let time = |secs| Timestamp { secs, nanos: 500 };
    let inode = Inode {
        mode: 0o100_644,
        links: 1,
        uid: 2,
        gid: 3,
        rdev: 4,
        flags: InodeFlags::INLINE | InodeFlags::XATTRS,
        size: 5,
        blocks: 6,
        parent: 7,
        atime: time(8),
        mtime: time(9),
        ctime: time(10),
        btime: time(-11),
        write_count: 12,
        modified: 13,
    };
    expect("inode", &inode.encode(), INODE);
    assert_eq!(Inode::decode(&inode.encode(), 17, Tolerance::Exact), Ok(inode));
    let longer = unhex(&format!("{INODE} 0102030405"));
    assert_eq!(Inode::decode(&longer, 17, Tolerance::Exact), Ok(inode));
    let changed = Inode { uid: 77, ..inode };
    let kept = Inode::keep_rest(&changed.encode(), Some(&longer)).into_owned();
    assert_eq!(kept, [&changed.encode()[..], &[1, 2, 3, 4, 5]].concat());
    assert_eq!(*Inode::keep_rest(&changed.encode(), Some(&inode.encode())), changed.encode());
    assert!(Inode::decode(&longer[..111], 17, Tolerance::Newer).is_err());
    let mut flagged = longer;
    flagged[23] = 0x80;
    assert!(Inode::decode(&flagged, 17, Tolerance::Exact).is_err());
    let later = Inode::decode(&flagged, 17, Tolerance::Newer).expect("a flag of a later program");
    assert_eq!(later.encode(), flagged[..112]);
}

#[test]
fn access_list() {
    let bytes = unhex(ACCESS_LIST);
    let mut list = AccessList::decode(&bytes).expect("a sound list");
    expect("list", &list.encode(), ACCESS_LIST);
    assert_eq!((list.shown(), list.is_mode()), (0o671, false));
    list.show(0o640);
    let changed = ACCESS_LIST.replace("10000700", "10000400").replace("20000100", "20000000");
    expect("list after a change of the mode", &list.encode(), &changed);
    assert_eq!(AccessListKind::Access.name(), b"system.posix_acl_access");
    assert_eq!(AccessListKind::Default.name(), b"system.posix_acl_default");
    assert_eq!(Features::ACCESS_LISTS, 1);
}

#[test]
fn mapping() {
    let key = run_key(17, 33);
    let mut run = MappingRun::default();
    run.set(
        33,
        Some(Mapping {
            address: 0x12_3456_789a,
            checksum: Some(0xaabb),
            history: History::plain(3, 4),
        }),
    );
    run.set(
        63,
        Some(Mapping {
            address: 1,
            checksum: Some(2),
            history: History { writes: u16::MAX, modified: 5 },
        }),
    );
    let mut bytes = Vec::new();
    run.encode(&mut bytes);
    expect("mapping run", &bytes, MAPPING);
    expect("key", &key.encode(), KEY);
    assert_eq!(Key::decode(&key.encode()), key);
    assert_eq!(MappingRun::decode(&bytes, &key, Tolerance::Exact), Ok(run.clone()));
    let extended = unhex(MAPPING_EXTENDED);
    let mut decoded = MappingRun::decode(&extended, &key, Tolerance::Exact).expect("a run");
    assert!(decoded.iter(32).eq(run.iter(32)));
    assert_eq!(decoded.records(), [9, 1, 3, 0, 7, 8, 9]);
    let mut again = Vec::new();
    decoded.encode(&mut again);
    expect("run with a record", &again, MAPPING_EXTENDED);
    for block in 32..64 {
        decoded.set(block, run.get(63));
    }
    again.clear();
    decoded.encode(&mut again);
    assert_eq!(again.len(), 4 + 32 * 16 + 7);
}

#[test]
fn in_place_mapping() {
    let key = run_key(17, 33);
    let mut run = MappingRun::default();
    run.set(33, Some(Mapping::in_place(0x12_3456_789a)));
    let mut bytes = Vec::new();
    run.encode(&mut bytes);
    expect("placed mapping", &bytes, PLACED);
    assert_eq!(MappingRun::decode(&bytes, &key, Tolerance::Exact), Ok(run));
}

#[test]
fn usage() {
    let entries = [
        UsageEntry::NEW,
        UsageEntry {
            live_blocks: 3,
            state: SegmentState::Sealed,
            head: Head(2),
            write_count_sum: 4,
            modified_sum: 5,
            opened: 7,
            sealed: 8,
            stamp: 6,
            erases: 0,
        },
    ];
    let bytes = UsageEntry::encode_item(&entries);
    expect("usage", &bytes, USAGE);
    expect("usage key", &usage_key(70).encode(), USAGE_KEY);
    assert_eq!(UsageEntry::decode_item(&bytes, 64), Ok(entries.to_vec()));
}

#[test]
fn erase_cycles() {
    let entry = UsageEntry { erases: 0x1234, ..UsageEntry::NEW };
    let golden =
        "0000000001003412 0000000000000000 0000000000000000 0000000000000000 0000000000000000";
    let bytes = UsageEntry::encode_item(&[entry]);
    expect("usage with erase cycles", &bytes, golden);
    assert_eq!(UsageEntry::decode_item(&bytes, 0), Ok(vec![entry]));
}

#[test]
fn wear_ledger() {
    let mut ledger = WearLedger::new(Day(20_000));
    let bytes = WearBytes { user: 1000, cleaning: 200, metadata: 4096, defragmentation: 0 };
    ledger.add(Day(20_000), bytes);
    ledger.add_recovered(Day(20_001), WearBytes::default(), 3);
    ledger.speed = WriteSpeed { first_micros: 0x0102_0304, samples: 16, slow: 2 };
    let golden = "01000000 204e0000 e803000000000000 c800000000000000 0010000000000000 0000000000000000 \
                  0300000000000000 04030201 1000 0200 \
                  0000000000000000 0000000000000000 0000000000000000 0000000000000000 \
                  0000000000000000 0000000000000000 0000000000000000 0000000000000000 \
                  0000 0100 a09c01 e807 c801 8020 00 0000 0000";
    expect("wear ledger", &ledger.encode(), golden);
    // Nine more days: the oldest two are rounded, each to three codes.
    (20_002..20_011).for_each(|day| ledger.add(Day(day), bytes));
    let encoded = ledger.encode();
    // 1000 and 200 round up to 2,048 for one day, and down to 0 for the other; 4096 is code 8. The second day does not follow the
    // first.
    let carry = "d0ffffffffffffff 90f9ffffffffffff 0000000000000000 0000000000000000";
    expect("carry", &encoded[56..88], carry);
    let rounded = "0200 0800 ffa09c01 010108 ff02 000008 01 e807 c801 8020 00";
    expect("rounded days", &encoded[120..144], rounded);
    assert_eq!(WearLedger::decode(&encoded).as_ref(), Some(&ledger));
    let mut extensions = Extensions::default();
    ledger.put_into(&mut extensions, EXTENSION_LEN_MAX);
    let record = extensions.iter().next().expect("a record");
    assert_eq!((record.tag, record.class), (7, ExtensionClass::Keep));
}

#[test]
fn enumerations() {
    let kinds = [
        ItemKind::Inode,
        ItemKind::Xattr,
        ItemKind::Inline,
        ItemKind::Mapping,
        ItemKind::Dirent,
        ItemKind::Orphan,
        ItemKind::Usage,
        ItemKind::Reservation,
    ];
    assert_eq!(kinds.map(|kind| kind as u8), [1, 2, 3, 4, 5, 6, 7, 8]);
    let kinds = [
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::CharDevice,
        FileKind::BlockDevice,
        FileKind::Socket,
    ];
    assert_eq!(kinds.map(|kind| kind as u8), [1, 2, 3, 4, 5, 6, 7]);
    let encodings = [
        Encoding::Plain,
        Encoding::InPlace,
        Encoding::Unwritten,
        Encoding::Shared,
        Encoding::Compressed,
    ];
    assert_eq!(encodings.map(|encoding| encoding as u8), [1, 2, 3, 4, 5]);
    let later: Vec<u8> = (0..=255).filter(|kind| Tolerance::Newer.is_later_kind(*kind)).collect();
    assert_eq!(later, Vec::from_iter(9..=254));
    let states = [
        SegmentState::Clean,
        SegmentState::Open,
        SegmentState::Sealed,
        SegmentState::Drained,
        SegmentState::Bad,
        SegmentState::InPlace,
    ];
    assert_eq!(states.map(|state| state as u8), [1, 2, 3, 4, 5, 6]);
    assert_eq!(DataLayout::ALL.map(|data_layout| data_layout as u32), [0, 1, 2, 3, 4]);
    assert_eq!(
        (FORMAT_VERSION, SUPERBLOCK_ADDRESS, LOCATOR_ADDRESS, CHECKPOINT_SLOT_BLOCKS),
        (2, 4, 5, 16)
    );
    assert_eq!((ROOT_INO, FIRST_INO, RUN_BLOCKS, USAGE_PER_ITEM), (1, 16, 32, 32));
    assert_eq!((VALUE_LEN_MAX, INLINE_LEN_MAX, SYMLINK_LEN_MAX), (1280, 1024, 4095));
}

const ERRORS: &str = "\
     0300000000000000 0200000000000000 00f1536500000000 4d00000000000000 \
     0af1536500000000 4e00000000000000 84030000 00000000 0100000000000000 \
     ffffffffffffffff 0000000000000000 ffffffffffffffff 0000000000000000";

#[test]
fn remembered_errors() {
    let mut errors = ErrorCounts::default();
    errors.note(ErrorKind::Unknown(900), Occurrence { secs: -1, at: 0 });
    errors.note(ErrorKind::Data, Occurrence { secs: 1_700_000_000, at: 77 });
    errors.note(ErrorKind::Data, Occurrence { secs: 1_700_000_010, at: 78 });
    expect("errors", &errors.encode(), ERRORS);
    let mut extensions = Extensions::default();
    errors.put_into(&mut extensions);
    let extension = extensions.iter().next().expect("a record");
    assert_eq!((extension.tag, extension.class), (1, ExtensionClass::Keep));
    assert_eq!(ErrorCounts::of(&extensions), Some(errors));
}

#[test]
fn reservation() {
    let range = Reservation { first: 0x0102_0304, last: 0x0506_0708 };
    expect("key", &range.key(0x11).encode(), "1100000000000000 08 0403020100000000");
    expect("value", &range.encode(), "08070605");
    assert_eq!(Reservation::decode(&range.key(0x11), &range.encode()), Ok(range));
    let totals = ReservationTotals { blocks: 0x0102_0304_0506, ranges: 7 };
    let mut extensions = Extensions::default();
    totals.put_into(&mut extensions);
    let record = extensions.iter().next().expect("a record");
    assert_eq!((record.tag, record.class), (3, ExtensionClass::ReadOnly));
    expect("totals", &record.bytes, "0605040302010000 0700000000000000");
    assert_eq!((InodeFlags::RESERVED.bits(), Features::PREALLOCATION), (64, 4));
}
