//! `cargo xtask bench aged`: how an aged volume is read, on filesystems side by side.
//!
//! A file and a tree of small files are written and read from a cold cache. Then most of the file is overwritten at random,
//! in virtual time on a model, and both are read again. Requests and bytes at the device come first, since they do not
//! depend on how busy the machine is.

mod counts;
mod idle;
mod report;
mod work;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use self::{
    report::{Report, State},
    work::Scale,
};
use super::{Contestant, medium::Medium, table};
use crate::{
    filesystem::FilesystemKind,
    machine,
    mount::Mount,
    scratch::Scratch,
    workspace::{Profile, Programs, Workspace},
};

/// Filesystems by the names that `--filesystems` takes.
const FILESYSTEMS: [(&str, Contestant); 6] = [
    ("sfs", Contestant::of(FilesystemKind::Sfs)),
    ("sfs-async", Contestant::reading("async_read=on")),
    ("sfs-sync", Contestant::reading("async_read=off")),
    ("ext4", Contestant::of(FilesystemKind::Ext4)),
    ("btrfs", Contestant::of(FilesystemKind::Btrfs)),
    ("xfs", Contestant::of(FilesystemKind::Xfs)),
];

/// Filesystems that are measured by default.
const DEFAULT: [&str; 4] = ["sfs", "ext4", "btrfs", "xfs"];

/// The arguments of `cargo xtask bench aged`.
#[derive(Args)]
pub(crate) struct AgedOptions {
    /// Filesystems: sfs, sfs-async and sfs-sync (with `-o async_read=on` and `off`), ext4, btrfs, xfs.
    #[arg(long, value_delimiter = ',', default_values = DEFAULT)]
    filesystems: Vec<String>,
    /// Devices: RAM, and models of flash and of a hard drive that age in virtual time and are read in real time.
    #[arg(long, value_delimiter = ',', default_value = "ram")]
    devices: Vec<Medium>,
    /// Size of the device, in MiB.
    #[arg(long, default_value_t = 2048)]
    size_mib: u64,
    /// MiB that are overwritten, in requests of 4 KiB; twice the device by default.
    #[arg(long)]
    overwrite_mib: Option<u64>,
    /// Seconds of each random load.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Directory with the programs of another build of SFS, instead of a release build of this workspace.
    #[arg(long)]
    build: Option<std::path::PathBuf>,
    /// Write the table to `docs/benchmarks.md`.
    #[arg(long)]
    publish: bool,
}

impl Contestant {
    /// Returns SFS with this option for reads.
    const fn reading(option: &'static str) -> Self {
        Self { option: Some(option), ..Self::of(FilesystemKind::Sfs) }
    }
}

/// Runs the benchmark, and prints or publishes its tables.
pub(crate) fn run(workspace: &Workspace, options: &AgedOptions) -> Result<()> {
    machine::need("fio", "fio")?;
    let lab = options.devices.iter().any(|medium| medium.is_model());
    let lab = lab.then(|| workspace.build(Profile::Release, &["sfs-lab"])).transpose()?;
    let mut report = Report::default();
    for medium in &options.devices {
        for name in &options.filesystems {
            let found = FILESYSTEMS.iter().find(|(known, _)| known == name);
            let Some((_, contestant)) = found else { bail!("no filesystem is called {name}") };
            println!("{} on {}", contestant.name(), medium.name());
            let measured = programs(workspace, options, *contestant).and_then(|programs| {
                let run = Run { options, medium: *medium, contestant: *contestant, programs };
                run.measure(lab.as_ref(), &mut report)
            });
            if let Err(error) = measured {
                eprintln!("{}: {error:#}", contestant.name());
                report.add_failure(*medium, &contestant.name(), &error);
            }
        }
    }
    let text = format!("{}.\n\n{}", machine::description(), report.markdown(&options.scale()));
    println!("\n{text}");
    if options.publish {
        table::publish(&workspace.root.join("docs/benchmarks.md"), "aged", &text)?;
    }
    Ok(())
}

impl AgedOptions {
    fn scale(&self) -> Scale {
        Scale {
            device_mib: self.size_mib,
            overwrite_mib: self.overwrite_mib.unwrap_or(2 * self.size_mib),
            seconds: self.seconds,
        }
    }
}

fn programs(
    workspace: &Workspace,
    options: &AgedOptions,
    contestant: Contestant,
) -> Result<Programs> {
    let build = options.build.as_ref().filter(|_| contestant.kind == FilesystemKind::Sfs);
    match build {
        Some(dir) => Ok(contestant.options_of(Programs::of_build(dir)?)),
        None => contestant.programs(workspace, Profile::Release),
    }
}

/// One filesystem on one device.
struct Run<'a> {
    options: &'a AgedOptions,
    medium: Medium,
    contestant: Contestant,
    programs: Programs,
}

impl Run<'_> {
    fn measure(&self, lab: Option<&Programs>, report: &mut Report) -> Result<()> {
        let scale = self.options.scale();
        let scratch = Scratch::in_ram(scale.device_mib << 20)?;
        let device = self.medium.make(lab, "image", scale.device_mib << 20, &scratch)?;
        let kind = self.contestant.kind;
        // RAM has no erase blocks.
        let segment_size = self.medium.is_model().then(|| self.medium.segment_size());
        let programs = self.programs.clone().with_segment_size(segment_size);
        kind.make(&programs, device.device(), self.medium.blocks())?;
        let dir = scratch.dir.join("mount");
        let name = device.device().block_device_name().context("the device is no block device")?;
        let session = work::Session {
            counter: counts::RequestCounter::of(name),
            scale,
            file: dir.join("file"),
            tree: dir.join("tree"),
            out: scratch.dir.join("fio.json"),
        };
        let on_mount = |real_time: bool, work: &mut dyn FnMut() -> Result<()>| {
            let mount = || Mount::new(kind, &programs, device.device(), &dir, self.medium.cache());
            // A filesystem may measure its device when it is mounted.
            let mount = if real_time { device.in_real_time(mount)? } else { mount()? };
            let result = if real_time { device.in_real_time(&mut *work) } else { work() };
            result?;
            mount.unmount()
        };
        on_mount(false, &mut || session.fill())?;
        for state in State::all(kind) {
            match state {
                State::Fresh => {}
                State::Aged => on_mount(false, &mut || session.age())?,
                State::Idle => on_mount(false, &mut || {
                    session.age()?;
                    let read = || session.read_in_order(&mut report::Figures::default());
                    idle::put_in_order(&programs, &dir, read)
                })?,
                State::Defragmented => on_mount(false, &mut || {
                    programs.cmd("sfs-ctl").arg("defrag").arg(&session.file).read().map(drop)
                })?,
            }
            let mut figures = report::Figures::default();
            on_mount(true, &mut || session.read_in_order(&mut figures))?;
            on_mount(true, &mut || session.read_at_random(&mut figures))?;
            on_mount(true, &mut || session.walk(&mut figures))?;
            report.add(self.medium, &self.contestant.name(), *state, figures);
        }
        kind.check(&programs, device.device())
    }
}
