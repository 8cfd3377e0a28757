//! Figures 5 to 8 of the paper: Bonnie++ by the size of its chunks, in device time.

use anyhow::{Context, Result};
use serde::Serialize;
use sfs_lab::host::{
    Bonnie, BonnieFigures, BonniePhase, DiskPair, Interrupted, MountedFilesystem, drop_pages,
    need_disks,
};
use sfs_lab::report::{Document, Series, table, with_bar};
use sfs_mkfs::{Human, output};

use super::subjects::{DIRTY_BYTES, HDD_LEN, SSD_LEN, Subject, pair};

/// Sizes of the chunks in bytes, as in the paper.
const CHUNKS: [u32; 5] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10];

/// Size of the file in MiB, and number of created files in multiples of 1024.
const SIZE_MIB: u32 = 128;
const KILOFILES: u32 = 1;

/// N-hybrid in its other form, for the row that says why it has no figures.
const IN_PLACE: (&str, &str) = (
    "N-hybrid in place",
    "not built: without marks in the disk's log nothing tells which copy is newer (decision 44)",
);

/// The rates of a filesystem with one size of chunks.
#[derive(Clone, Debug, Default, PartialEq)]
struct Rates {
    write_mb_s: f64,
    rewrite_mb_s: f64,
    read_mb_s: f64,
    creates_s: f64,
    synced_creates_s: f64,
    /// Bonnie++'s own figures of the first run, in real time.
    own: BonnieFigures,
}

/// The rates by size of the chunks, or the reason why there are none.
type SubjectRates = Result<Vec<Rates>, String>;

/// A line of the CSV.
#[derive(Serialize)]
struct CsvRow {
    filesystem: String,
    chunk: u32,
    write_mb_s: f64,
    rewrite_mb_s: f64,
    read_mb_s: f64,
    creates_s: f64,
    synced_creates_s: f64,
    real_time_write_kib_s: Option<f64>,
    real_time_rewrite_kib_s: Option<f64>,
    real_time_read_kib_s: Option<f64>,
    real_time_creates_s: Option<f64>,
}

/// One of the figures: its name, number in the paper, heading of the table and value.
struct Figure {
    name: &'static str,
    what: &'static str,
    value: fn(&Rates) -> f64,
    digits: usize,
}

const FIGURES: [Figure; 5] = [
    Figure {
        name: "n-hybrid-figure5",
        what: "figure 5: sequential write, MB/s",
        value: |rates| rates.write_mb_s,
        digits: 1,
    },
    Figure {
        name: "n-hybrid-figure6",
        what: "figure 6: sequential rewrite, MB/s",
        value: |rates| rates.rewrite_mb_s,
        digits: 1,
    },
    Figure {
        name: "n-hybrid-figure7",
        what: "figure 7: sequential read, MB/s",
        value: |rates| rates.read_mb_s,
        digits: 1,
    },
    Figure {
        name: "n-hybrid-figure8",
        what: "figure 8: creates a second",
        value: |rates| rates.creates_s,
        digits: 0,
    },
    Figure {
        name: "n-hybrid-figure8-synced",
        what: "creates a second, each synced (-b)",
        value: |rates| rates.synced_creates_s,
        digits: 0,
    },
];

/// Runs the experiment, and returns its text; `None` if this machine cannot.
///
/// # Errors
///
/// If this process receives a signal to end. A filesystem that fails has a row with the reason.
pub(super) fn text(document: Option<&Document>) -> Result<Option<String>> {
    if let Err(error) = need_disks().and(Bonnie::need()) {
        output::complain(format_args!("skipped: figures 5 to 8: {error:#}"));
        return Ok(None);
    }
    let total = (Subject::ALL.len() * CHUNKS.len()) as u64;
    let mut outcomes: Vec<SubjectRates> = Vec::new();
    with_bar(|progress| {
        for subject in Subject::ALL {
            let mut found = Ok(Vec::new());
            for (no, chunk) in (1..).zip(CHUNKS) {
                let Ok(rates) = &mut found else { break };
                match measure(subject, chunk) {
                    Ok(outcome) => rates.push(outcome),
                    Err(error) if error.is::<Interrupted>() => return Err(error),
                    Err(error) => found = Err(format!("{error:#}")),
                }
                progress(outcomes.len() as u64 * CHUNKS.len() as u64 + no, total);
            }
            outcomes.push(found);
        }
        anyhow::Ok(())
    })?;
    if let Some(document) = document {
        document.file("n-hybrid-bonnie.csv", &csv(&outcomes)?)?;
        for figure in &FIGURES {
            document.figure(figure.name, &series(&outcomes, figure))?;
        }
    }
    Ok(Some(shown(&outcomes)))
}

/// Runs Bonnie++ on one filesystem, on new models.
fn measure(subject: Subject, chunk: u32) -> Result<Rates> {
    let pair = pair()?;
    let filesystem = subject.make(&pair)?;
    let device = pair.device(subject.medium());
    let options = subject.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mounted = filesystem.mount_with(&options, device, pair.folder())?;
    let job = Bonnie {
        size_mib: SIZE_MIB,
        chunk,
        kilofiles: KILOFILES,
        is_synchronous: false,
        sync_bytes: DIRTY_BYTES,
    };
    let (times, own) = timed(&job, &mounted, &pair)?;
    let synced = Bonnie { size_mib: 0, is_synchronous: true, ..job };
    let (synced_times, _) = timed(&synced, &mounted, &pair)?;
    mounted.unmount()?;
    let mb = f64::from(SIZE_MIB) * 1.048_576;
    let files = f64::from(KILOFILES) * 1024.0;
    let rate = |times: &PhaseTimes, amount: f64, phase| -> Result<f64> {
        Ok(amount / times.seconds(phase)?)
    };
    Ok(Rates {
        write_mb_s: rate(&times, mb, BonniePhase::Write)?,
        rewrite_mb_s: rate(&times, mb, BonniePhase::Rewrite)?,
        read_mb_s: rate(&times, mb, BonniePhase::Read)?,
        creates_s: rate(&times, files, BonniePhase::Create)?,
        synced_creates_s: rate(&synced_times, files, BonniePhase::Create)?,
        own,
    })
}

/// The device time of each phase, in nanoseconds.
#[derive(Default)]
struct PhaseTimes(Vec<(BonniePhase, u64)>);

impl PhaseTimes {
    fn seconds(&self, phase: BonniePhase) -> Result<f64> {
        let found = self.0.iter().find(|(of, _)| *of == phase);
        let (_, ns) = found.with_context(|| format!("bonnie++ has not begun {phase:?}"))?;
        Ok((*ns).max(1) as f64 / 1e9)
    }
}

/// Runs Bonnie++, and returns the device time of each phase: up to the end of a sync after the phase. The page cache is
/// empty before each.
fn timed(
    job: &Bonnie,
    mounted: &MountedFilesystem,
    pair: &DiskPair,
) -> Result<(PhaseTimes, BonnieFigures)> {
    let mut times = PhaseTimes::default();
    let mut running: Option<(BonniePhase, u64)> = None;
    let own = job.run(mounted.dir(), &|| pair.check(), &mut |next| {
        mounted.sync()?;
        let now_ns = pair.flushed_ns()?;
        if let Some((phase, began_ns)) = running.take() {
            times.0.push((phase, now_ns - began_ns));
        }
        drop_pages(mounted.dir())?;
        let began_ns = pair.flushed_ns()?;
        running = next.map(|phase| (phase, began_ns));
        Ok(())
    })?;
    Ok((times, own))
}

/// Returns the tables.
fn shown(outcomes: &[SubjectRates]) -> String {
    let mut text = format!(
        "Bonnie++ with a file of {SIZE_MIB} MiB and {} created files of the size of a chunk, on a Deskstar of {} and an SSD-M of {}; \
         rates in device time. The filesystem is synced after every {} that Bonnie++ writes, and after each phase; the page cache \
         is empty before each. Each cell is one run, on new models.\n",
        KILOFILES * 1024,
        Human(HDD_LEN),
        Human(SSD_LEN),
        Human(DIRTY_BYTES),
    );
    let chunks = CHUNKS.map(|chunk| Human(u64::from(chunk)).to_string());
    for figure in &FIGURES {
        let heading: Vec<String> =
            std::iter::once(figure.what.to_owned()).chain(chunks.clone()).collect();
        text += &format!("\n{}", table(&heading, &rows(outcomes, figure)));
    }
    if let Some(bound) = against_ext4(outcomes) {
        text += &format!("\n{bound}\n");
    }
    text
}

/// Returns the rows of a figure's table.
fn rows(outcomes: &[SubjectRates], figure: &Figure) -> Vec<Vec<String>> {
    let refused = |name: String, reason: &str| {
        let mut row = vec![name, reason.to_owned()];
        row.resize(CHUNKS.len() + 1, String::new());
        row
    };
    let row = |(subject, outcome): (&Subject, &SubjectRates)| match outcome {
        Ok(found) => {
            let cells =
                found.iter().map(|rates| format!("{:.*}", figure.digits, (figure.value)(rates)));
            std::iter::once(subject.name()).chain(cells).collect()
        }
        Err(reason) => refused(subject.name(), reason),
    };
    let in_place = refused(IN_PLACE.0.to_owned(), IN_PLACE.1);
    Subject::ALL.iter().zip(outcomes).map(row).chain([in_place]).collect()
}

/// Returns the sentence on the sequential write of the disk with the cache over that of ext4 on the disk alone.
fn against_ext4(outcomes: &[SubjectRates]) -> Option<String> {
    let of = |wanted: Subject| {
        let at = Subject::ALL.iter().position(|subject| *subject == wanted)?;
        outcomes.get(at)?.as_ref().ok()
    };
    let (ours, ext4) = (of(Subject::NHybrid)?, of(Subject::EXT4_ON_DISK)?);
    let ratios: Vec<f64> =
        ours.iter().zip(ext4).map(|(ours, ext4)| ours.write_mb_s / ext4.write_mb_s).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let shown: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    let kept = if least >= 0.9 { "kept" } else { "not kept" };
    Some(format!(
        "Sequential write of SFS on the disk with the cache over ext4 on the disk alone: {} by chunk; the bound of 0.9 is {kept}.",
        shown.join(", ")
    ))
}

/// Returns a figure's bars, by the number of the chunk.
fn series(outcomes: &[SubjectRates], figure: &Figure) -> Vec<Series> {
    let found = Subject::ALL.iter().zip(outcomes).filter_map(|(subject, outcome)| {
        let rates = outcome.as_ref().ok()?;
        let points = rates.iter().enumerate().map(|(no, rates)| (no as f64, (figure.value)(rates)));
        Some(Series::new(subject.name(), points.collect()))
    });
    found.collect()
}

fn csv(outcomes: &[SubjectRates]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (subject, outcome) in Subject::ALL.iter().zip(outcomes) {
        for (chunk, rates) in CHUNKS.iter().zip(outcome.iter().flatten()) {
            writer.serialize(CsvRow {
                filesystem: subject.name(),
                chunk: *chunk,
                write_mb_s: rates.write_mb_s,
                rewrite_mb_s: rates.rewrite_mb_s,
                read_mb_s: rates.read_mb_s,
                creates_s: rates.creates_s,
                synced_creates_s: rates.synced_creates_s,
                real_time_write_kib_s: rates.own.write_kib_s,
                real_time_rewrite_kib_s: rates.own.rewrite_kib_s,
                real_time_read_kib_s: rates.own.read_kib_s,
                real_time_creates_s: rates.own.creates_s,
            })?;
        }
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filesystem_has_a_row_and_the_form_in_place_its_reason() {
        let mut outcomes: Vec<SubjectRates> =
            Subject::ALL.iter().map(|_| Err("a reason".to_owned())).collect();
        let rates = |write_mb_s| vec![Rates { write_mb_s, ..Rates::default() }; CHUNKS.len()];
        (outcomes[2], outcomes[7]) = (Ok(rates(50.0)), Ok(rates(40.0)));
        let rows = rows(&outcomes, &FIGURES[0]);
        assert_eq!(rows.len(), Subject::ALL.len() + 1);
        assert!(rows.iter().all(|row| row.len() == CHUNKS.len() + 1));
        assert_eq!((rows[2][1].as_str(), rows[0][1].as_str()), ("50.0", "a reason"));
        assert_eq!((rows[8][0].as_str(), &rows[8][1][..9]), ("N-hybrid in place", "not built"));
        assert_eq!(series(&outcomes, &FIGURES[0]).len(), 2);
        let bound = against_ext4(&outcomes).expect("both have rates");
        assert!(bound.contains("0.80, 0.80") && bound.ends_with("not kept."), "{bound}");
        assert_eq!(csv(&outcomes).expect("CSV").lines().count(), 1 + 2 * CHUNKS.len());
    }
}
