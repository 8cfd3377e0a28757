//! Random direct reads of 4 KiB from mounted filesystems: cold, and warm from the cache.

use anyhow::Result;
use sfs_lab::host::{Interrupted, Medium, RandomReads, need_disks};
use sfs_lab::report::{table, with_bar};
use sfs_mkfs::output;

use super::subjects::{Subject, pair};

/// The filesystems that are compared, the one with the cache last.
const SUBJECTS: [Subject; 5] = [
    Subject::EXT4_ON_DISK,
    Subject::Sfs(Medium::Hdd),
    Subject::EXT2_ON_SSD,
    Subject::Sfs(Medium::Ssd),
    Subject::NHybrid,
];

/// A file of 32 MiB, and 8,000 reads.
const READS: RandomReads = RandomReads { blocks: 8192, count: 8000 };

/// Reads a second in device time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ReadRates {
    cold_s: f64,
    warm_s: f64,
}

/// Runs the experiment, and returns its text; `None` if this machine cannot.
pub(super) fn text() -> Result<Option<String>> {
    if let Err(error) = need_disks() {
        output::complain(format_args!("skipped: random reads: {error:#}"));
        return Ok(None);
    }
    let mut outcomes: Vec<Result<ReadRates, String>> = Vec::new();
    with_bar(|progress| {
        for (no, subject) in (1..).zip(SUBJECTS) {
            match measure(subject) {
                Err(error) if error.is::<Interrupted>() => return Err(error),
                outcome => outcomes.push(outcome.map_err(|error| format!("{error:#}"))),
            }
            progress(no, SUBJECTS.len() as u64);
        }
        anyhow::Ok(())
    })?;
    Ok(Some(shown(&outcomes)))
}

/// Writes the file, reads each block once, and reads blocks again.
fn measure(subject: Subject) -> Result<ReadRates> {
    let pair = pair()?;
    let filesystem = subject.make(&pair)?;
    let device = pair.device(subject.medium());
    // A mount of its own, so that nothing is cached in memory.
    let mounted = filesystem.mount(device, pair.folder())?;
    READS.write(mounted.dir())?;
    mounted.unmount()?;
    let mounted = filesystem.mount(device, pair.folder())?;
    let check = || pair.check();
    let timed = |work: &dyn Fn() -> Result<()>| -> Result<f64> {
        let began_ns = pair.flushed_ns()?;
        work()?;
        Ok((pair.flushed_ns()? - began_ns).max(1) as f64 / 1e9)
    };
    let cold = timed(&|| READS.read_each(mounted.dir(), &check))?;
    if subject == Subject::NHybrid {
        mounted.flush_cache()?;
    }
    let warm = timed(&|| READS.read_again(mounted.dir(), &check))?;
    mounted.unmount()?;
    Ok(ReadRates { cold_s: f64::from(READS.blocks) / cold, warm_s: f64::from(READS.count) / warm })
}

/// Returns the table, and the sentence on the bound.
fn shown(outcomes: &[Result<ReadRates, String>]) -> String {
    let heading = ["random reads of 4 KiB a second", "each block once", "again"];
    let rows: Vec<Vec<String>> = SUBJECTS
        .iter()
        .zip(outcomes)
        .map(|(subject, outcome)| match outcome {
            Ok(rates) => {
                vec![subject.name(), format!("{:.0}", rates.cold_s), format!("{:.0}", rates.warm_s)]
            }
            Err(reason) => vec![subject.name(), reason.clone(), String::new()],
        })
        .collect();
    let mut text = format!(
        "Direct reads of a file of 32 MiB, in device time: each block once, then {} random ones.\n\n{}",
        READS.count,
        table(&heading.map(str::to_owned), &rows)
    );
    if let [.., Ok(ssd), Ok(cached)] = outcomes {
        let ratio = cached.warm_s / ssd.warm_s;
        let kept = if ratio >= 0.9 { "kept" } else { "not kept" };
        text += &format!(
            "\nWarm reads with the cache over those of the SSD alone: {ratio:.2}; the bound of 0.9 is {kept}.\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_compares_the_last_two_rows() {
        let rates = |warm_s| Ok(ReadRates { cold_s: 100.0, warm_s });
        let mut outcomes =
            vec![rates(150.0), rates(150.0), rates(2500.0), rates(2000.0), rates(1900.0)];
        let text = shown(&outcomes);
        assert!(text.contains("| SFS, disk with cache | 100 | 1900 |"), "{text}");
        assert!(text.contains("0.95; the bound of 0.9 is kept"), "{text}");
        outcomes[4] = Err("no room".to_owned());
        assert!(shown(&outcomes).contains("| SFS, disk with cache | no room |"));
    }
}
