//! The command line: fsck(8)'s, as its wrapper and systemd give it.

use std::path::PathBuf;

use clap::Parser;

/// Checks an SFS volume that is not mounted. Nothing is written: a volume that is sound needs
/// nothing, as mounting rolls the log forward.
#[derive(Clone, Debug, Parser)]
#[command(name = "sfs-fsck", version, disable_version_flag = true)]
#[command(after_help = "Exit codes: 0 clean, 4 damaged, 8 cannot check, 16 usage, 32 cancelled")]
pub(crate) struct Command {
    /// Check only (what happens without any flag, too)
    #[arg(short = 'n', conflicts_with_all = ["preen", "auto", "yes"])]
    no: bool,

    /// Repair what is safe to repair, as at boot
    #[arg(short = 'p', conflicts_with = "yes")]
    preen: bool,

    /// The same as -p
    #[arg(short = 'a', conflicts_with = "yes")]
    auto: bool,

    /// Repair, and answer every question with yes
    #[arg(short = 'y')]
    yes: bool,

    /// Ask before each repair
    #[arg(short = 'r', hide = true)]
    interactive: bool,

    /// Check even if the volume says that it is clean (which is always done)
    #[arg(short = 'f', long)]
    force: bool,

    /// Read all data and compare it with its checksums, too
    #[arg(long)]
    pub(crate) data: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Say more
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    /// Block device or image file
    pub(crate) device: PathBuf,
}

impl Command {
    /// Whether damage was to be repaired.
    pub(crate) fn wants_repair(&self) -> bool {
        self.preen || self.auto || self.yes || self.interactive
    }
}
