//! The tables and figures of the comparison, with the paper's values in parentheses.

use anyhow::Result;
use sfs_lab::flash::ModelOutcome;
use sfs_lab::report::{Document, Series, table};
use sfs_mkfs::Human;

use super::arguments::{Arguments, ERASE_BLOCK_DIVISOR, FULL};
use super::paper::{PublishedCurves, SWEEP, UTILIZATIONS, published};
use super::run::FilesystemRun;

/// Index of the device on which the paper compares filesystems.
const SSD_M: usize = 1;

fn cells(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Returns our value, with the paper's value in parentheses.
fn beside(ours: String, paper: Option<String>) -> String {
    paper.map_or(ours.clone(), |paper| format!("{ours} ({paper})"))
}

/// A workload, and the runs of all filesystems under it.
pub(super) type Compared<'a> = (&'a str, Vec<FilesystemRun>);
/// A workload, a filesystem, and its throughputs in MB/s on the three devices by utilization; `None` if the
/// filesystem ran out of space.
pub(super) type Curve<'a> = (&'a str, String, Vec<Option<[f64; 3]>>);

/// Returns the text of the section, and writes the figures.
pub(super) fn text(
    arguments: &Arguments,
    compared: &[Compared<'_>],
    curves: &[Curve<'_>],
    document: Option<&Document>,
) -> Result<String> {
    let mut text = format!(
        "A device of {}, full before; data fills {:.0}% of it, {:.0}% of it is overwritten; an fsync every \
         1,024 writes; {} times the working set to warm up, {} times to count. SFS with segments of {}. \
         Erase blocks of 512 KiB, 10% to spare, FAST with {} random log blocks, no discards unless the \
         column says so. Values in parentheses are the paper's. The paper's erases are ratios to its SFS: \
         its runs were of another size.\n\n",
        Human(arguments.size),
        FULL * 100.0,
        arguments.working_set * 100.0,
        arguments.warm_up,
        arguments.measure,
        Human(arguments.segment_size),
        arguments.log_blocks,
    );
    for (no, (name, runs)) in compared.iter().enumerate() {
        text += &comparison_table(name, no, runs);
        text.push('\n');
    }
    text += &totals(compared);
    text += &format!(
        "SSD-H, SSD-M and SSD-L with erase blocks smaller by {ERASE_BLOCK_DIVISOR}, no discards; MB/s that the \
         user wrote, in device time.\n\n"
    );
    for (no, (name, runs)) in compared.iter().enumerate() {
        text += &devices_table(name, no, runs);
    }
    text += &curves_table(curves, document)?;
    if let Some(document) = document {
        document.figure("flash-erases", &erases_series(compared))?;
    }
    Ok(text)
}

fn comparison_table(name: &str, no: usize, runs: &[FilesystemRun]) -> String {
    let heading = cells(&[
        name,
        "user MiB",
        "device/user",
        "page-mapped: flash WA",
        "erases/GiB",
        "erases / SFS",
        "with discards: flash WA",
        "erases / SFS",
        "FAST: flash WA",
        "erases/GiB",
        "erases / SFS",
        "with discards: flash WA",
        "erases / SFS",
    ]);
    let first = runs.iter().find_map(|run| run.simulator);
    let lines: Vec<Vec<String>> = runs.iter().map(|run| line(no, run, first.as_ref())).collect();
    table(&heading, &lines)
}

fn line(no: usize, run: &FilesystemRun, first: Option<&[ModelOutcome; 4]>) -> Vec<String> {
    let (Some(on), Some(first)) = (&run.simulator, first) else {
        let mut line = cells(&[&run.filesystem, "no room"]);
        line.resize(13, String::new());
        return line;
    };
    let ratio = |model: usize| on[model].erases_per_gib() / first[model].erases_per_gib().max(1e-9);
    let wa = |model: usize| format!("{:.3}", on[model].flash_amplification);
    let erases = |model: usize| format!("{:.0}", on[model].erases_per_gib());
    let paper = |figure| published(&run.filesystem, figure, no);
    let paper_wa = |figure| paper(figure).map(|wa| format!("{wa:.2}"));
    let paper_ratio = |figure: usize| {
        let sfs = published("SFS", figure, no)?;
        paper(figure).map(|erases| format!("{:.1}", erases / sfs))
    };
    vec![
        run.filesystem.clone(),
        run.user_mib.to_string(),
        format!("{:.3}", on[0].log_amplification()),
        beside(wa(0), paper_wa(3)),
        erases(0),
        beside(format!("{:.2}", ratio(0)), paper_ratio(4)),
        wa(2),
        format!("{:.2}", ratio(2)),
        beside(wa(1), paper_wa(1)),
        erases(1),
        beside(format!("{:.2}", ratio(1)), paper_ratio(2)),
        wa(3),
        format!("{:.2}", ratio(3)),
    ]
}

/// Returns the table of all workloads together: erases over those of the first policy of SFS.
fn totals(compared: &[Compared<'_>]) -> String {
    let heading = cells(&[
        "erases of all workloads / SFS",
        "page-mapped",
        "FAST",
        "with discards: page-mapped",
        "FAST",
    ]);
    let names: Vec<&String> = compared
        .first()
        .map_or(Vec::new(), |(_, runs)| runs.iter().map(|run| &run.filesystem).collect());
    let sum = |name: &str, model: usize| -> Option<f64> {
        let of = |runs: &Vec<FilesystemRun>| {
            let run = runs.iter().find(|run| run.filesystem == name)?;
            run.simulator.as_ref().map(|on| on[model].erases_per_gib())
        };
        compared.iter().map(|(_, runs)| of(runs)).sum()
    };
    let paper = |name: &str, figure: usize| -> Option<f64> {
        let sum = |name: &str| (0..4).map(|no| published(name, figure, no)).sum::<Option<f64>>();
        Some(sum(name)? / sum("SFS")?)
    };
    let mut rows = Vec::new();
    for name in &names {
        let mut row = vec![(*name).clone()];
        for (model, figure) in [(0, Some(4)), (1, Some(2)), (2, None), (3, None)] {
            let ours = sum(name, model).zip(sum(names[0], model)).map(|(own, sfs)| own / sfs);
            let ours = ours.map_or("no room".into(), |ratio| format!("{ratio:.2}"));
            let paper = figure.and_then(|figure| paper(name, figure));
            row.push(beside(ours, paper.map(|ratio| format!("{ratio:.1}"))));
        }
        rows.push(row);
    }
    format!("{}\n", table(&heading, &rows))
}

fn devices_table(name: &str, no: usize, runs: &[FilesystemRun]) -> String {
    let mut heading = vec![name.to_owned()];
    for device in ["H", "M", "L"] {
        heading.extend([format!("SSD-{device}: MB/s"), "flash WA".into(), "erases/GiB".into()]);
    }
    let mut rows = Vec::new();
    for run in runs {
        let Some(devices) = &run.devices else { continue };
        let mut row = vec![run.filesystem.clone()];
        for (device, on) in devices.iter().enumerate() {
            let paper = published(&run.filesystem, 0, no).filter(|_| device == SSD_M);
            let speed = format!("{:.2}", on.user_mb_per_s());
            row.push(beside(speed, paper.map(|speed| format!("{speed:.1}"))));
            row.push(format!("{:.3}", on.flash_amplification));
            row.push(format!("{:.0}", on.erases_per_gib()));
        }
        rows.push(row);
    }
    format!("{}\n", table(&heading, &rows))
}

fn curves_table(curves: &[Curve<'_>], document: Option<&Document>) -> Result<String> {
    if curves.is_empty() {
        return Ok(String::new());
    }
    let mut heading = cells(&["MB/s of the user by utilization"]);
    heading.extend(UTILIZATIONS.map(|utilization| format!("{:.0}%", utilization * 100.0)));
    let mut rows = Vec::new();
    for (device, name) in ["SSD-H", "SSD-M", "SSD-L"].iter().enumerate() {
        for (workload, filesystem, points) in curves {
            let mut row = vec![format!("{name}, {workload}: {filesystem}")];
            let shown = |point: &Option<[f64; 3]>| match point {
                Some(speeds) => format!("{:.1}", speeds[device]),
                None => "no room".into(),
            };
            row.extend(points.iter().map(shown));
            rows.push(row);
        }
        for PublishedCurves { workload, sfs, lfs } in &SWEEP {
            let lfs = Some(("LFS", lfs)).filter(|_| device == SSD_M);
            for (whose, paper) in [("SFS", &sfs[device])].into_iter().chain(lfs) {
                let mut row = vec![format!("{name}, {workload}: the paper's {whose}")];
                row.extend(paper.map(|speed| format!("{speed:.1}")));
                rows.push(row);
            }
        }
    }
    if let Some(document) = document {
        for (no, published) in SWEEP.iter().enumerate() {
            let mut series: Vec<Series> = Vec::new();
            for (_, filesystem, points) in
                curves.iter().filter(|curve| curve.0 == published.workload)
            {
                let known = UTILIZATIONS.into_iter().zip(points);
                let points =
                    known.filter_map(|(at, speeds)| speeds.map(|speeds| (at, speeds[SSD_M])));
                series.push(Series::new(filesystem, points.collect()));
            }
            if series.is_empty() {
                continue;
            }
            for (name, paper) in
                [("the paper's SFS", published.sfs[SSD_M]), ("the paper's LFS", published.lfs)]
            {
                series.push(Series::new(name, UTILIZATIONS.into_iter().zip(paper).collect()));
            }
            document.figure(&format!("flash-utilization-{no}"), &series)?;
        }
    }
    Ok(format!("{}\n", table(&heading, &rows)))
}

/// Returns erases by workload on the page-mapped model without discards, a line for each filesystem.
fn erases_series(compared: &[Compared<'_>]) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for (no, (_, runs)) in compared.iter().enumerate() {
        for run in runs {
            let Some(on) = &run.simulator else { continue };
            let point = (no as f64, on[0].erases_per_gib());
            Series::add(&mut series, &run.filesystem, point);
        }
    }
    series
}
