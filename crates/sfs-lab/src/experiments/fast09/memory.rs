//! Table 2: the memory of Greedy-Space, and of the other schemes.

use anyhow::{Context, Result};
use sfs_core::AllocationMemory;
use sfs_core::format::DataLayout;
use sfs_lab::report::table;
use sfs_mkfs::Human;
use sfs_ssd::SsdProfile;

const KIB: u64 = 1 << 10;

/// The paper's bytes for an entry of its tree.
const PAPER_ENTRY: u64 = 36;

/// Size of a block, in bytes.
const BLOCK: u64 = 4096;

const SCHEMES: [(&str, DataLayout); 3] = [
    ("greedy-space", DataLayout::GreedySpace),
    ("clock-space", DataLayout::ClockSpace),
    ("block-group", DataLayout::BlockGroup),
];

/// Returns the table, of volumes as large as the paper's devices with segments of their logical blocks: names and sizes.
pub(super) fn table2(logical_blocks: &[(&str, u64)]) -> Result<String> {
    let mut heading =
        ["table 2: device", "segments", "Greedy-Space: paper"].map(str::to_owned).to_vec();
    heading.extend(SCHEMES.iter().map(|(name, _)| format!("{name}: ours")));
    heading.push("bitmap, all".to_owned());
    let mut rows = Vec::new();
    for &(name, logical_block) in logical_blocks {
        let capacity = SsdProfile::by_name(name).context("a profile")?.geometry.capacity();
        let segments = capacity.next_multiple_of(1 << 30) / logical_block;
        let memory = |layout| {
            let memory =
                AllocationMemory::of(layout, segments as u32, (logical_block / BLOCK) as u32);
            memory.context("a layout in place")
        };
        let mut row = vec![format!("{name}, {}", Human(segments * logical_block))];
        row.push(segments.to_string());
        row.push(format!("{} KiB", segments * PAPER_ENTRY / KIB));
        for (_, layout) in SCHEMES {
            row.push(format!("{} KiB", memory(layout)?.scheme as u64 / KIB));
        }
        row.push(format!("{} KiB", memory(DataLayout::BlockGroup)?.bitmap as u64 / KIB));
        rows.push(row);
    }
    Ok(format!("\n{}", table(&heading, &rows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_space_takes_a_third_of_the_papers_memory() {
        let table = table2(&[("mtron", 4 << 20)]).expect("a profile");
        let line = "| mtron, 32 GiB | 8192 | 288 KiB | 96 KiB | 0 KiB | 0 KiB | 1024 KiB |";
        assert!(table.contains(line), "{table}");
    }
}
