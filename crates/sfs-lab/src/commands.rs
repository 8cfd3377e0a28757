//! The subcommands of `sfs-lab`, and the call of each.
//!
//! A command that works on one model, trace, policy or mount is a module here. A command that fills a
//! section of `docs/lab.md` or `docs/lab/flash.md` is a module of `experiments`.

mod advise;
mod age;
mod all;
mod bound;
mod export;
mod hdd;
mod in_memory;
mod model;
mod overwrite;
mod pair;
mod redraw;
mod replay;
mod simulate;
mod ssd;
mod wear_levelling;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use crate::experiments::{
    atc09, evidence, fast09, fast09_schemes, file_runs, hard_drive, kernel_filesystems, n_hybrid,
    objects, policy_table, postmark, random_writes, segment_size, sfs, sfs_flash, shin_cases,
    sync_remainder,
};

#[derive(Parser)]
#[command(name = "sfs-lab", version, about = "The policy laboratory of SFS")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Run one workload with one grouping policy and one victim policy.
    Simulate(simulate::Arguments),
    /// Replay a trace on the model of a flash device, and print statistics of the trace; or repeat the load of a volume
    /// in a directory.
    Replay(replay::Arguments),
    /// Compare policies, segment sizes and write buffers under the load of a volume, which sfs-ctl trace has recorded,
    /// and say which is best.
    Advise(advise::Arguments),
    /// Measure a model as sfs-mkfs would, and fit the write cost model of the FAST 2009 paper.
    Model(model::Arguments),
    /// Make the model of a flash device a block device of this machine, for any filesystem.
    Ssd(ssd::Arguments),
    /// Make the model of a hard drive a block device of this machine, for any filesystem.
    Hdd(hdd::Arguments),
    /// Make the models of a flash device and of a hard drive block devices of this machine, with one clock.
    Pair(pair::Arguments),
    /// Print the log write amplification of a cleaner that knows the constant rate of every block.
    Bound(bound::Arguments),
    /// Fill a mounted filesystem, and delete files at random down to a utilization.
    Age(age::Arguments),
    /// Overwrite the blocks of a file on any filesystem as a workload does.
    Overwrite(overwrite::Arguments),
    /// Overwrite a file on a volume in RAM, with exact counts.
    InMemory(in_memory::Arguments),
    /// Overwrite a part of a volume on raw flash, and print the erasures of its blocks with and without static wear
    /// levelling.
    WearLevelling(wear_levelling::Arguments),
    /// Run a paper's experiments, and print its figures beside ours.
    #[command(subcommand)]
    Reproduce(Paper),
    /// Compare the heads to which a sync can write blocks that fill no segment.
    #[command(alias = "remainder")]
    SyncRemainder(sync_remainder::Arguments),
    /// Create and delete files over the block interface of a device, with and without trim, and over an object interface.
    Objects(objects::Arguments),
    /// Run every policy on every generator and every trace.
    Table(policy_table::Arguments),
    /// Run the default policy and the others, with a mounted volume's write buffer, over several
    /// seeds.
    Evidence(evidence::Arguments),
    /// Draw the figures of docs/lab again from the CSV files beside them.
    Redraw(redraw::Arguments),
}

#[derive(Subcommand)]
enum Paper {
    /// The model of a hard drive against its data sheet.
    HardDrive(hard_drive::Arguments),
    /// Developing NAND Flash-Memory SSD-Based File System Design (N-hybrid): an SSD as a cache before a hard drive.
    NHybrid(n_hybrid::Arguments),
    /// SFS: Random Write Considered Harmful in Solid State Drives (FAST 2012).
    Sfs(sfs::Arguments),
    /// The same paper's figure 1: random write bandwidth by the size of the requests.
    RandomWrites(random_writes::Arguments),
    /// The same paper's section 4.4: the kernel's filesystems and SFS on one model of flash.
    SfsFlash(sfs_flash::Arguments),
    /// A Performance Model and File System Space Allocation Schemes for SSDs (FAST 2009): figures
    /// 2, 3, table 2.
    Fast09(fast09::Arguments),
    /// The same paper's figures 5 to 9: its space allocation schemes on aged filesystems.
    Fast09Schemes(fast09_schemes::Arguments),
    /// The size of erase blocks that sfs-mkfs measures, on every profile, new and used.
    SegmentSize(segment_size::Arguments),
    /// Block Management in Solid-State Devices (ATC 2009): its tables.
    Atc09(atc09::Arguments),
    /// About SSD (Shin 2008): Postmark over filesystems.
    #[command(alias = "shin")]
    Postmark(postmark::Arguments),
    /// The same slides' case studies: options of ext4, btrfs and XFS, alignment, and command queues.
    ShinCases(shin_cases::Arguments),
    /// The kernel's filesystems and SFS under one overwriting job, on two flash models.
    #[command(alias = "peers")]
    KernelFilesystems(kernel_filesystems::Arguments),
    /// The runs in which a file lies on the device after the same job, on F2FS, NILFS2 and SFS.
    FileRuns(file_runs::Arguments),
    /// All of these, and the other experiments that fill the documents: one after another, with a summary at the end.
    All(all::Arguments),
}

impl Arguments {
    /// Runs the command that the arguments name.
    pub(crate) fn run(&self) -> Result<()> {
        match &self.command {
            LabCommand::Simulate(arguments) => simulate::run(arguments),
            LabCommand::Replay(arguments) => replay::run(arguments),
            LabCommand::Advise(arguments) => advise::run(arguments),
            LabCommand::Model(arguments) => model::run(arguments),
            LabCommand::Ssd(arguments) => ssd::run(arguments),
            LabCommand::Hdd(arguments) => hdd::run(arguments),
            LabCommand::Pair(arguments) => pair::run(arguments),
            LabCommand::Age(arguments) => age::run(arguments),
            LabCommand::Bound(arguments) => bound::run(arguments),
            LabCommand::Overwrite(arguments) => overwrite::run(arguments),
            LabCommand::InMemory(arguments) => in_memory::run(arguments),
            LabCommand::WearLevelling(arguments) => wear_levelling::run(arguments),
            LabCommand::Reproduce(paper) => paper.run(),
            LabCommand::SyncRemainder(arguments) => sync_remainder::run(arguments),
            LabCommand::Objects(arguments) => objects::run(arguments),
            LabCommand::Table(arguments) => policy_table::run(arguments),
            LabCommand::Evidence(arguments) => evidence::run(arguments),
            LabCommand::Redraw(arguments) => redraw::run(arguments),
        }
    }
}

impl Paper {
    fn run(&self) -> Result<()> {
        match self {
            Paper::HardDrive(arguments) => hard_drive::run(arguments),
            Paper::NHybrid(arguments) => n_hybrid::run(arguments),
            Paper::Sfs(arguments) => sfs::run(arguments),
            Paper::RandomWrites(arguments) => random_writes::run(arguments),
            Paper::SfsFlash(arguments) => sfs_flash::run(arguments),
            Paper::Fast09(arguments) => fast09::run(arguments),
            Paper::Fast09Schemes(arguments) => fast09_schemes::run(arguments),
            Paper::SegmentSize(arguments) => segment_size::run(arguments),
            Paper::Atc09(arguments) => atc09::run(arguments),
            Paper::Postmark(arguments) => postmark::run(arguments),
            Paper::ShinCases(arguments) => shin_cases::run(arguments),
            Paper::KernelFilesystems(arguments) => kernel_filesystems::run(arguments),
            Paper::FileRuns(arguments) => file_runs::run(arguments),
            Paper::All(arguments) => all::run(arguments, &Arguments::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paper_and_every_command_that_fills_a_section_is_run_with_all() {
        let lab = Arguments::command();
        let all = all::Experiment::all(&lab).iter().map(all::Experiment::shown).collect::<Vec<_>>();
        let papers = lab.find_subcommand("reproduce").expect("papers").get_subcommands().count();
        let of_papers = all.iter().filter(|shown| shown.starts_with("sfs-lab reproduce ")).count();
        assert_eq!(of_papers, papers - 1, "{all:?}");
        for other in ["table", "evidence", "sync-remainder", "wear-levelling", "objects"] {
            assert!(all.contains(&format!("sfs-lab {other}")), "{other} is not in {all:?}");
        }
        assert!(!all.iter().any(|shown| shown.contains("redraw") || shown.ends_with(" all")));
    }
}
