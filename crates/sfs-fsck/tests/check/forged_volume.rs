//! Forged volume on a device, to which a test appends chunks and damage.

use sfs_core::format::{
    Change, CheckpointRecord, ChunkHeader, ChunkSummary, DeltaForm, Head, History, SummaryEntry,
    Superblock, codec, summary_blocks,
};
use sfs_device::{BLOCK_SIZE, Block, Device, RamDevice, Stream};

/// Volume on its device, with the end of its log.
pub(crate) struct ForgedVolume {
    pub(crate) device: RamDevice,
    pub(crate) superblock: Superblock,
    pub(crate) sequence: u64,
    pub(crate) previous: u32,
    pub(crate) record: CheckpointRecord,
    /// Form of the deltas in the next chunks.
    pub(crate) form: DeltaForm,
}

impl ForgedVolume {
    /// Writes the next chunk at `address`. Returns its number of blocks.
    pub(crate) fn append(
        &mut self,
        head: Head,
        address: u64,
        entries: &[SummaryEntry],
        blocks: &[Block],
        delta: &[u8],
        end: bool,
    ) -> u32 {
        let header = ChunkHeader {
            volume: self.superblock.volume(),
            sequence: self.sequence,
            address,
            previous: self.previous,
            time: 0,
            head,
            end,
            form: self.form,
        };
        let count = summary_blocks(entries.len(), delta.len());
        let mut summary = Block::zeroed(count);
        let bytes = Block::bytes_of_mut(&mut summary);
        self.previous = ChunkSummary::encode(&header, entries, delta, bytes);
        self.sequence += 1;
        self.device.write(address, &[&summary, blocks], Stream(head.0)).expect("RAM");
        (count + blocks.len()) as u32
    }

    pub(crate) fn write_record(&self, slot: usize, record: &CheckpointRecord) {
        let at = self.superblock.layout.slots[slot];
        self.write(at, &record.encode(self.superblock.volume(), at));
    }

    /// Writes whole blocks.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        let mut blocks = Block::zeroed(bytes.len() / BLOCK_SIZE);
        Block::bytes_of_mut(&mut blocks).copy_from_slice(bytes);
        self.device.write(address, &[&blocks], Stream::default()).expect("RAM");
    }

    /// Flips the lowest bit of `byte` of block `address`.
    pub(crate) fn flip(&self, address: u64, byte: usize) {
        let mut block = Block::zeroed(1);
        self.device.read(address, &mut block).expect("RAM");
        block[0].0[byte] ^= 1;
        self.device.write(address, &[&block], Stream::default()).expect("RAM");
    }

    /// Returns the address at which `head` appends next, by the checkpoint.
    pub(crate) fn head_address(&self, head: usize) -> u64 {
        let head = self.record.heads[head];
        self.superblock.layout.segment_address(head.segment) + u64::from(head.next_block)
    }
}

/// Returns the summary entry of a data block.
pub(crate) fn data_entry(ino: u64, block: u32, content: &Block) -> SummaryEntry {
    let checksum = crc32c::crc32c(&content.0);
    SummaryEntry::Data { ino, block, checksum, history: History::plain(2, 9) }
}

/// Encodes a delta.
pub(crate) fn encode_delta(changes: &[Change]) -> Vec<u8> {
    let mut bytes = Vec::new();
    changes.iter().for_each(|change| change.append(&mut bytes));
    bytes
}

/// Encodes a delta in the form of format version 1.
pub(crate) fn encode_plain_delta(changes: &[Change]) -> Vec<u8> {
    let mut bytes = Vec::new();
    changes.iter().for_each(|change| codec::append(change, &mut bytes));
    bytes
}

/// Sets the checksum of a superblock to match its bytes.
pub(crate) fn reseal_superblock(bytes: &mut [u8; BLOCK_SIZE]) {
    let checksum = crc32c::crc32c(&bytes[12..]).to_le_bytes();
    bytes[8..12].copy_from_slice(&checksum);
}

/// Sets the checksum of a node to match its bytes, and returns it.
pub(crate) fn reseal(bytes: &mut [u8; BLOCK_SIZE]) -> u32 {
    let checksum = crc32c::crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    checksum
}
