//! Forge: writer of small volumes that are sound, or wrong in exactly one way.
//!
//! The forge uses `sfs_core::format` for single structures, and builds tree, log and usage table on its own.
//! All checksums are sound, also over forged content.

use std::collections::BTreeMap;
use std::hash::Hasher;

use sfs_core::format::{
    CheckpointRecord, DeltaForm, FIRST_INO, FileKind, Head, HeadRecord, History, Inode, InodeFlags,
    ItemKind, Key, Label, Layout, Mapping, MappingRun, NodeHeader, NodePointer, ROOT_INO,
    SUPERBLOCK_ADDRESS, SegmentState, SummaryEntry, Superblock, Timestamp, Tolerance,
    USAGE_PER_ITEM, UsageEntry, run_key, summary_blocks, usage_key,
};
use sfs_device::{BLOCK_SIZE, Block, RamDevice};
use siphasher::sip::SipHasher13;

use super::forged_volume::{ForgedVolume, data_entry, reseal};

const BLOCK_COUNT: u64 = 4096;
const SEGMENT_BLOCKS: u64 = 32;

pub(crate) const HELLO: u64 = FIRST_INO;
pub(crate) const DATA: u64 = FIRST_INO + 1;
pub(crate) const SUB: u64 = FIRST_INO + 2;
pub(crate) const LINK: u64 = FIRST_INO + 3;
pub(crate) const GONE: u64 = FIRST_INO + 4;
pub(crate) const NEXT_INO: u64 = FIRST_INO + 5;

/// Change of a structure before its checksum is computed.
type Hook<T> = Box<dyn Fn(&mut T)>;
type NodeHook = Box<dyn Fn(u8, &mut [u8; BLOCK_SIZE])>;

/// Level and items of a node that has no address yet. The items of an inner node are the first keys of its
/// children, each with the index of the child's draft in one byte.
pub(crate) type NodeDraft = (u8, Vec<(Key, Vec<u8>)>);

/// Content of a volume to be written, with changes of its structures.
pub(crate) struct Forge {
    pub(crate) superblock: Superblock,
    pub(crate) items: BTreeMap<Key, Vec<u8>>,
    /// Changes the drafts of the nodes, children before parents, root last.
    pub(crate) on_drafts: Hook<Vec<NodeDraft>>,
    /// Changes the bytes of a node, whose level is the first argument.
    pub(crate) on_node: NodeHook,
    /// Changes the usage table.
    pub(crate) on_usage: Hook<Vec<UsageEntry>>,
    /// Changes the checkpoint.
    pub(crate) on_record: Hook<CheckpointRecord>,
    /// Changes the summary entries of data blocks.
    pub(crate) on_entries: Hook<Vec<SummaryEntry>>,
    data: Vec<(u64, u32, Block)>,
}

pub(crate) fn directory(parent: u64, size: u64, links: u32) -> Inode {
    Inode { links, size, parent, ..file(FileKind::Directory, 0) }
}

pub(crate) fn file(kind: FileKind, size: u64) -> Inode {
    let time = Timestamp { secs: 1_000_000, nanos: 5 };
    Inode {
        mode: kind.mode_bits() | 0o644,
        links: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: InodeFlags::NONE,
        size,
        blocks: 0,
        parent: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        write_count: 0,
        modified: 0,
    }
}

pub(crate) fn entry_value(target: u64, kind: FileKind, name: &[u8]) -> Vec<u8> {
    [&target.to_le_bytes(), &[kind as u8][..], name].concat()
}

fn hash(superblock: &Superblock, name: &[u8]) -> u64 {
    let [k0, k1] = superblock.hash_key;
    let mut hasher = SipHasher13::new_with_keys(k0, k1);
    hasher.write(name);
    hasher.finish()
}

pub(crate) fn entry_key(superblock: &Superblock, parent: u64, name: &[u8]) -> Key {
    Key::new(parent, ItemKind::Dirent, (hash(superblock, name) >> 9).max(1) << 8)
}

pub(crate) fn xattr_key(superblock: &Superblock, ino: u64, name: &[u8], part: u64) -> Key {
    Key::new(ino, ItemKind::Xattr, hash(superblock, name) >> 32 << 32 | part)
}

impl Forge {
    /// Returns a volume with an empty root directory.
    pub(crate) fn empty() -> Self {
        let superblock = Superblock {
            uuid: *b"forged-volume-01",
            label: Label::NONE,
            layout: Layout::new(BLOCK_COUNT, SEGMENT_BLOCKS, 0).expect("a layout"),
            hash_key: [1, 2],
            data_layout: Default::default(),
            created: Timestamp { secs: 1_000_000, nanos: 0 },
            ..Superblock::new(Layout::new(BLOCK_COUNT, SEGMENT_BLOCKS, 0).expect("a layout"))
        };
        let mut forge = Self {
            superblock,
            items: BTreeMap::new(),
            on_drafts: Box::new(|_| {}),
            on_node: Box::new(|_, _| {}),
            on_usage: Box::new(|_| {}),
            on_record: Box::new(|_| {}),
            on_entries: Box::new(|_| {}),
            data: Vec::new(),
        };
        forge.inode(ROOT_INO, &directory(ROOT_INO, 0, 2));
        forge
    }

    /// Returns a volume with an inline file, a file with blocks, extended attributes and two names, a
    /// directory, a symbolic link, and a file without a name.
    pub(crate) fn populated() -> Self {
        let mut forge = Self::empty();
        forge.inode(ROOT_INO, &directory(ROOT_INO, 4, 3));
        forge.entry(ROOT_INO, b"hello", HELLO, FileKind::Regular);
        let inline = Inode { flags: InodeFlags::INLINE, ..file(FileKind::Regular, 5) };
        forge.inode(HELLO, &inline);
        forge.put(Key::new(HELLO, ItemKind::Inline, 0), b"hello".to_vec());

        forge.entry(ROOT_INO, b"data", DATA, FileKind::Regular);
        forge.entry(SUB, b"data too", DATA, FileKind::Regular);
        let blocks = [0, 1, 40];
        let data = Inode {
            links: 2,
            blocks: blocks.len() as u64,
            flags: InodeFlags::XATTRS,
            ..file(FileKind::Regular, 41 * BLOCK_SIZE as u64 - 7)
        };
        forge.inode(DATA, &data);
        for block in blocks {
            forge.data.push((DATA, block, Block([block as u8 + 1; BLOCK_SIZE])));
        }
        forge.xattr(DATA, b"user.short", b"value");
        forge.xattr(DATA, b"user.long", &[7; 2500]);

        forge.entry(ROOT_INO, b"sub", SUB, FileKind::Directory);
        forge.inode(SUB, &directory(ROOT_INO, 1, 2));
        forge.entry(ROOT_INO, b"link", LINK, FileKind::Symlink);
        forge.inode(LINK, &file(FileKind::Symlink, 1500));
        forge.put(Key::new(LINK, ItemKind::Inline, 0), vec![b'x'; 1024]);
        forge.put(Key::new(LINK, ItemKind::Inline, 1), vec![b'y'; 476]);

        forge.inode(GONE, &Inode { links: 0, ..file(FileKind::Regular, 0) });
        forge.put(Key::new(0, ItemKind::Orphan, GONE), vec![0; 8]);
        forge
    }

    pub(crate) fn put(&mut self, key: Key, value: Vec<u8>) {
        self.items.insert(key, value);
    }

    pub(crate) fn inode(&mut self, ino: u64, inode: &Inode) {
        self.put(Key::inode(ino), inode.encode().to_vec());
    }

    pub(crate) fn change_inode(&mut self, ino: u64, change: impl FnOnce(&mut Inode)) {
        let mut inode =
            Inode::decode(&self.items[&Key::inode(ino)], ino, Tolerance::Exact).expect("an inode");
        change(&mut inode);
        self.inode(ino, &inode);
    }

    pub(crate) fn entry(&mut self, parent: u64, name: &[u8], target: u64, kind: FileKind) {
        let key = entry_key(&self.superblock, parent, name);
        self.put(key, entry_value(target, kind, name));
    }

    pub(crate) fn entry_key(&self, parent: u64, name: &[u8]) -> Key {
        entry_key(&self.superblock, parent, name)
    }

    pub(crate) fn xattr_key(&self, ino: u64, name: &[u8], part: u64) -> Key {
        xattr_key(&self.superblock, ino, name, part)
    }

    pub(crate) fn xattr(&mut self, ino: u64, name: &[u8], value: &[u8]) {
        let mut bytes = vec![name.len() as u8, 0];
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
        for (part, piece) in (0..).zip(bytes.chunks(1024)) {
            self.put(self.xattr_key(ino, name, part), piece.to_vec());
        }
    }

    /// Returns the address of data block `index` of [`Forge::populated`].
    pub(crate) fn data_address(&self, index: u64) -> u64 {
        self.superblock.layout.segment_address(1) + 1 + index
    }

    /// Sets the mapping of `block` of `ino`.
    pub(crate) fn map(&mut self, ino: u64, block: u32, mapping: Mapping) {
        let key = run_key(ino, block);
        let mut run = self.items.get(&key).map_or_else(MappingRun::default, |value| {
            MappingRun::decode(value, &key, Tolerance::Exact).expect("a run")
        });
        run.set(block, Some(mapping));
        let mut value = Vec::new();
        run.encode(&mut value);
        self.put(key, value);
    }

    /// Maps the data blocks to the addresses at which [`Forge::build`] writes them.
    pub(crate) fn map_data(&mut self) {
        let mappings: Vec<(u64, u32, Mapping)> = (0..)
            .zip(&self.data)
            .map(|(index, (ino, block, content))| {
                let address = self.data_address(index);
                let checksum = crc32c::crc32c(&content.0);
                (
                    *ino,
                    *block,
                    Mapping { address, checksum: Some(checksum), history: History::plain(2, 9) },
                )
            })
            .collect();
        for (ino, block, mapping) in mappings {
            if self.items.contains_key(&Key::inode(ino)) {
                self.map(ino, block, mapping);
            }
        }
    }

    /// Writes the volume to a new device.
    pub(crate) fn build(&self) -> ForgedVolume {
        let mut volume = ForgedVolume {
            device: RamDevice::new(BLOCK_COUNT),
            superblock: self.superblock.clone(),
            sequence: 1,
            previous: 0,
            record: self.record(),
            form: DeltaForm::Tagged,
        };
        let layout = &self.superblock.layout;
        if !self.data.is_empty() {
            let mut entries: Vec<SummaryEntry> = self
                .data
                .iter()
                .map(|(ino, block, content)| data_entry(*ino, *block, content))
                .collect();
            (self.on_entries)(&mut entries);
            let blocks: Vec<Block> = self.data.iter().map(|(_, _, block)| block.clone()).collect();
            volume.append(Head(1), layout.segment_address(1), &entries, &blocks, &[], true);
        }
        let sequence = volume.sequence;
        let shape = self.nodes(&self.usage(0, sequence));
        let usage = self.usage(shape.len(), sequence);
        let (nodes, root, level) = self.seal(self.nodes(&usage));
        let entries: Vec<SummaryEntry> = nodes
            .iter()
            .map(|node| SummaryEntry::Node { checksum: NodeHeader::checksum_of(&node.0) })
            .collect();
        volume.append(Head::METADATA, layout.segment_address(0), &entries, &nodes, &[], true);
        let mut record = self.record();
        (record.next_sequence, record.previous) = (volume.sequence, volume.previous);
        (record.root_address, record.root_checksum) = (root.address, root.checksum);
        record.root_level = level;
        record.heads = self.heads(nodes.len());
        (self.on_record)(&mut record);
        volume.write_record(0, &record);
        volume.record = record;
        for at in [SUPERBLOCK_ADDRESS, layout.backup] {
            volume.write(at, &self.superblock.encode());
        }
        volume
    }

    fn record(&self) -> CheckpointRecord {
        CheckpointRecord {
            number: 2,
            next_sequence: 0,
            previous: 0,
            root_address: 0,
            root_checksum: 0,
            root_level: 0,
            next_ino: NEXT_INO,
            heads: Vec::new(),
            blocks_written: 0,
            policies: Vec::new(),
            unmounted: true,
            mount_count: 0,
            user_bytes_written: 0,
            device_bytes_written: 0,
            extensions: Default::default(),
        }
    }

    fn heads(&self, node_count: usize) -> Vec<HeadRecord> {
        let next = |count: usize| (count + summary_blocks(count, 0)) as u32;
        let mut heads =
            vec![HeadRecord { head: Head::METADATA, segment: 0, next_block: next(node_count) }];
        if !self.data.is_empty() {
            heads.push(HeadRecord { head: Head(1), segment: 1, next_block: next(self.data.len()) });
        }
        heads
    }

    /// Returns the usage table for a tree of `node_count` nodes in chunk `sequence`.
    fn usage(&self, node_count: usize, sequence: u64) -> Vec<UsageEntry> {
        let layout = &self.superblock.layout;
        let mut table = vec![UsageEntry::NEW; layout.segment_count as usize];
        table[0].live_blocks = node_count as u32;
        table[0].state = SegmentState::Open;
        table[0].stamp = sequence;
        if !self.data.is_empty() {
            table[1] =
                UsageEntry { state: SegmentState::Open, head: Head(1), stamp: 1, ..table[1] };
        }
        for (key, value) in &self.items {
            if key.kind != ItemKind::Mapping as u8 {
                continue;
            }
            let Ok(run) = MappingRun::decode(value, key, Tolerance::Exact) else { continue };
            for (_, mapping) in run.iter(0) {
                let Some(segment) = layout.segment_of(mapping.address) else { continue };
                let entry = &mut table[segment as usize];
                entry.live_blocks += 1;
                entry.write_count_sum += u64::from(mapping.history.write_count());
                entry.modified_sum += u64::from(mapping.history.modified);
            }
        }
        (self.on_usage)(&mut table);
        table
    }

    /// Returns the drafts of the leaves, then of the root above them if there are several leaves.
    fn nodes(&self, usage: &[UsageEntry]) -> Vec<NodeDraft> {
        let mut items = self.items.clone();
        for (first, entries) in (0..).step_by(32).zip(usage.chunks(USAGE_PER_ITEM as usize)) {
            items.entry(usage_key(first)).or_insert_with(|| UsageEntry::encode_item(entries));
        }
        let mut nodes: Vec<NodeDraft> = vec![(0, Vec::new())];
        let mut room = BLOCK_SIZE - NodeHeader::LEN;
        for (key, value) in items {
            let len = Key::LEN + 4 + value.len();
            if len > room {
                nodes.push((0, Vec::new()));
                room = BLOCK_SIZE - NodeHeader::LEN;
            }
            room -= len;
            nodes.last_mut().expect("a leaf").1.push((key, value));
        }
        if nodes.len() > 1 {
            let children = (0..).zip(&nodes).map(|(at, (_, items))| (items[0].0, vec![at]));
            let children = children.collect();
            nodes.push((1, children));
        }
        (self.on_drafts)(&mut nodes);
        nodes
    }

    /// Returns the nodes as blocks, with the pointer to the root and its level.
    fn seal(&self, nodes: Vec<NodeDraft>) -> (Vec<Block>, NodePointer, u8) {
        let segment = self.superblock.layout.segment_address(0);
        let first = segment + summary_blocks(nodes.len(), 0) as u64;
        let mut pointers: Vec<NodePointer> = Vec::new();
        let mut blocks = Vec::new();
        let level = nodes.last().expect("a root").0;
        for (address, (level, items)) in (first..).zip(nodes) {
            let mut bytes = match level {
                0 => leaf(&items),
                _ => inner(&items, &pointers),
            };
            let header = NodeHeader { level, item_count: items.len() as u16 };
            header.seal(&mut bytes, self.superblock.volume(), address, 2);
            (self.on_node)(level, &mut bytes);
            let checksum = reseal(&mut bytes);
            pointers.push(NodePointer { address, checksum });
            blocks.push(Block(bytes));
        }
        (blocks, *pointers.last().expect("a root"), level)
    }
}

fn leaf(items: &[(Key, Vec<u8>)]) -> [u8; BLOCK_SIZE] {
    let mut bytes = [0; BLOCK_SIZE];
    let (mut slot, mut end) = (NodeHeader::LEN, BLOCK_SIZE);
    for (key, value) in items {
        end -= value.len();
        bytes[end..end + value.len()].copy_from_slice(value);
        bytes[slot..slot + 17].copy_from_slice(&key.encode());
        bytes[slot + 17..slot + 19].copy_from_slice(&(end as u16).to_le_bytes());
        bytes[slot + 19..slot + 21].copy_from_slice(&(value.len() as u16).to_le_bytes());
        slot += 21;
    }
    bytes
}

fn inner(children: &[(Key, Vec<u8>)], pointers: &[NodePointer]) -> [u8; BLOCK_SIZE] {
    let mut bytes = [0; BLOCK_SIZE];
    let entries = bytes[NodeHeader::LEN..].chunks_exact_mut(29);
    for (entry, (key, child)) in entries.zip(children) {
        entry[..17].copy_from_slice(&key.encode());
        entry[17..].copy_from_slice(&pointers[usize::from(child[0])].encode());
    }
    bytes
}
