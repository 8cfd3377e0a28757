//! The command line: fsck(8)'s, as its wrapper and systemd give it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Checks and repairs an SFS volume that is not mounted. A volume that is sound needs neither after a
/// power cut: mounting rolls the log forward.
#[derive(Clone, Debug, Parser)]
#[command(name = "sfs-fsck", version, disable_version_flag = true)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Exit codes, added up: 0 clean, 1 repaired, 4 errors left, 8 cannot check, 16 usage, 32 cancelled")]
pub(crate) struct Command {
    #[command(subcommand)]
    pub(crate) action: Option<Action>,

    #[command(flatten)]
    pub(crate) checking: Checking,

    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// What else can be done.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Action {
    /// Shows a structure of a volume, mounted or not
    Dump(Dump),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Dump {
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Block device or image file
    pub(crate) device: PathBuf,

    #[command(subcommand)]
    pub(crate) what: What,
}

/// What to do about what is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Change nothing.
    Check,
    /// Repair what loses nothing.
    Preen,
    /// Repair.
    Repair,
    /// Ask, if there is anything to repair.
    Ask,
}

/// A structure of a volume.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum What {
    /// Both superblocks
    Superblock,
    /// Both checkpoint slots
    Checkpoints,
    /// The chunks of a segment, and its entry in the usage table
    Segment {
        /// Number of the segment
        segment: u32,
    },
    /// A tree node
    Node {
        /// Block address
        address: u64,
    },
    /// The attributes and items of an inode
    Inode {
        /// Number of the inode
        ino: u64,
    },
    /// The same for what is at a path
    Path {
        /// From the volume's root: /a/b
        path: PathBuf,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Checking {
    /// Check only
    #[arg(short = 'n', conflicts_with_all = ["preen", "auto", "yes"])]
    no: bool,

    /// Repair what loses nothing, as at boot; a volume that was unmounted is not read
    #[arg(short = 'p', conflicts_with = "yes")]
    preen: bool,

    /// The same as -p
    #[arg(short = 'a', conflicts_with = "yes")]
    auto: bool,

    /// Repair whatever can be repaired
    #[arg(short = 'y')]
    yes: bool,

    /// Ask before a repair (what happens on a terminal without -n, -p and -y)
    #[arg(short = 'r', conflicts_with_all = ["no", "preen", "auto", "yes"])]
    ask: bool,

    /// With -p: check even if the volume was unmounted
    #[arg(short = 'f', long)]
    pub(crate) force: bool,

    /// Read all data and compare it with its checksums, too; with -y blocks that are wrong become holes
    #[arg(long)]
    pub(crate) data: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Say more
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Block device or image file
    #[arg(required = true)]
    pub(crate) device: Option<PathBuf>,
}

impl Checking {
    /// What was asked for, if anything was.
    pub(crate) fn mode(&self) -> Option<Mode> {
        match self {
            Self { no: true, .. } => Some(Mode::Check),
            Self { yes: true, .. } => Some(Mode::Repair),
            Self { preen, auto, .. } if *preen || *auto => Some(Mode::Preen),
            Self { ask: true, .. } => Some(Mode::Ask),
            _ => None,
        }
    }
}
