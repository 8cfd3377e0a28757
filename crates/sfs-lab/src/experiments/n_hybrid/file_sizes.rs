//! Figures 1 and 2 of the paper: ext2 on an SSD over ext2 on a hard drive, by the size of the files.

use anyhow::Result;
use sfs_lab::host::{
    DiskPair, FileOperation, FileOrder, Filesystem, Medium, SizedFiles, need_disks,
};
use sfs_lab::report::{Document, Series, table, with_bar};
use sfs_mkfs::{Human, output};

use super::subjects::{Kernel, pair};

/// Sizes of the files in KiB.
const SIZES_KIB: [u32; 6] = [1, 4, 16, 64, 256, 1024];

/// Maximum number of files, and of bytes of all.
const FILES_MAX: u32 = 2048;
const BYTES_MAX: u32 = 96 << 20;

/// Name of a figure, its heading, and the order of its files.
const FIGURES: [(&str, &str, FileOrder); 2] = [
    ("n-hybrid-figure1", "figure 1: sequential, SSD over disk", FileOrder::Sequential),
    ("n-hybrid-figure2", "figure 2: random, SSD over disk", FileOrder::Random),
];

/// The device time of each operation, in the order of [`FileOperation::ALL`], in nanoseconds.
type Times = [u64; FileOperation::ALL.len()];

/// Runs the experiment, and returns its text; `None` if this machine cannot.
pub(super) fn text(document: Option<&Document>) -> Result<Option<String>> {
    let needed = Kernel::Ext2.filesystem().missing();
    let missing = needed.map(|program| anyhow::anyhow!("{program} is not installed"));
    if let Err(error) = need_disks().and(missing.map_or(Ok(()), Err)) {
        output::complain(format_args!("skipped: figures 1 and 2: {error:#}"));
        return Ok(None);
    }
    let total = (FIGURES.len() * SIZES_KIB.len()) as u64;
    let mut done = 0;
    let mut text = format!(
        "ext2, up to {FILES_MAX} files and {} of each size; the ratio of the rates in device time. The filesystem is synced after each \
         operation, and mounted anew before it.\n",
        Human(u64::from(BYTES_MAX))
    );
    with_bar(|progress| {
        for (name, what, order) in FIGURES {
            let mut lines =
                FileOperation::ALL.map(|operation| Series::new(operation.name(), Vec::new()));
            for kib in SIZES_KIB {
                let files = SizedFiles { count: count(kib), len: (kib << 10) as usize, order };
                let [hdd, ssd] = [measure(Medium::Hdd, &files)?, measure(Medium::Ssd, &files)?];
                for ((line, hdd), ssd) in lines.iter_mut().zip(hdd).zip(ssd) {
                    line.points.push((f64::from(kib), hdd as f64 / ssd.max(1) as f64));
                }
                done += 1;
                progress(done, total);
            }
            text += &format!("\n{}", shown(what, &lines));
            if let Some(document) = document {
                document.figure(name, &lines)?;
            }
        }
        anyhow::Ok(())
    })?;
    Ok(Some(text))
}

/// Returns the number of files of a size.
fn count(kib: u32) -> u32 {
    FILES_MAX.min(BYTES_MAX / (kib << 10))
}

/// Returns the time of each operation on a new device.
fn measure(medium: Medium, files: &SizedFiles) -> Result<Times> {
    let pair = pair()?;
    let filesystem = Kernel::Ext2.filesystem();
    filesystem.make(pair.device(medium))?;
    let mut times = Times::default();
    for (time, operation) in times.iter_mut().zip(FileOperation::ALL) {
        *time =
            timed(&filesystem, medium, &pair, |dir| files.run(operation, dir, &|| pair.check()))?;
    }
    Ok(times)
}

/// Mounts the filesystem, does `work`, and returns the device time of it and of a sync.
fn timed(
    filesystem: &Filesystem,
    medium: Medium,
    pair: &DiskPair,
    work: impl FnOnce(&std::path::Path) -> Result<()>,
) -> Result<u64> {
    let mounted = filesystem.mount(pair.device(medium), pair.folder())?;
    let began_ns = pair.flushed_ns()?;
    work(mounted.dir())?;
    mounted.sync()?;
    let ended_ns = pair.flushed_ns()?;
    mounted.unmount()?;
    Ok(ended_ns - began_ns)
}

/// Returns the table of a figure.
fn shown(what: &str, lines: &[Series]) -> String {
    let sizes = SIZES_KIB.map(|kib| Human(u64::from(kib) << 10).to_string());
    let heading: Vec<String> = std::iter::once(what.to_owned()).chain(sizes).collect();
    let row = |line: &Series| -> Vec<String> {
        let ratios = line.points.iter().map(|(_, ratio)| format!("{ratio:.1}"));
        std::iter::once(line.name.clone()).chain(ratios).collect()
    };
    table(&heading, &lines.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_fewer_when_they_are_large() {
        assert_eq!(SIZES_KIB.map(count), [2048, 2048, 2048, 1536, 384, 96]);
    }

    #[test]
    fn the_table_has_a_row_for_each_operation() {
        let lines = FileOperation::ALL.map(|operation| {
            Series::new(operation.name(), SIZES_KIB.map(|kib| (f64::from(kib), 2.0)).to_vec())
        });
        let text = shown("ratio", &lines);
        assert!(text.contains("| rewrite | 2.0 | 2.0 |"), "{text}");
        assert_eq!(text.lines().count(), 2 + FileOperation::ALL.len());
    }
}
