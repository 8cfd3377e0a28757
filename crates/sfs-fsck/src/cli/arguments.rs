//! Arguments of the program. The options of a check are those that fsck(8) and systemd pass.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{Args, Parser};

use crate::cli::dump::DumpSubject;

/// Checks and repairs an SFS volume that is not mounted. A sound volume needs neither after a power cut:
/// a mount rolls the log forward.
#[derive(Clone, Debug, Parser)]
#[command(name = "sfs-fsck", version, disable_version_flag = true)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Exit codes, added up: 0 clean, 1 repaired, 4 errors left, 8 cannot check, 16 usage, 32 cancelled")]
pub(crate) struct FsckArguments {
    #[command(subcommand)]
    pub(crate) subcommand: Option<Subcommand>,

    #[command(flatten)]
    pub(crate) check: CheckArguments,

    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// Subcommand; without one the volume is checked.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    /// Shows a structure of a volume, mounted or not
    Dump(DumpArguments),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DumpArguments {
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Key of a volume whose objects are encrypted
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// Block device, image file, or URL of an object store
    pub(crate) device: PathBuf,

    #[command(subcommand)]
    pub(crate) target: DumpTarget,
}

/// Action on findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunMode {
    /// Change nothing.
    Check,
    /// Repair if the repair loses nothing.
    Preen,
    /// Repair.
    Repair,
    /// Ask before a repair.
    Ask,
}

/// Structure of a volume to be shown.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum DumpTarget {
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
    /// The attributes and items of the inode at a path
    Path {
        /// Path from the volume's root: /a/b
        path: PathBuf,
    },
}

impl DumpTarget {
    /// Returns the subject for [`crate::cli::dump::dump`].
    pub(crate) fn subject(&self) -> DumpSubject {
        match self {
            Self::Superblock => DumpSubject::Superblock,
            Self::Checkpoints => DumpSubject::Checkpoints,
            Self::Segment { segment } => DumpSubject::Segment(*segment),
            Self::Node { address } => DumpSubject::Node(*address),
            Self::Inode { ino } => DumpSubject::Inode(*ino),
            Self::Path { path } => DumpSubject::Path(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CheckArguments {
    /// Check only, change nothing
    #[arg(short = 'n', conflicts_with_all = ["preen", "auto", "yes"])]
    no: bool,

    /// Repair if nothing is lost, as at boot; skip a volume that was unmounted
    #[arg(short = 'p', conflicts_with = "yes")]
    preen: bool,

    /// Same as -p
    #[arg(short = 'a', conflicts_with = "yes")]
    auto: bool,

    /// Repair everything that can be repaired
    #[arg(short = 'y')]
    yes: bool,

    /// Ask before a repair (the default on a terminal)
    #[arg(short = 'r', conflicts_with_all = ["no", "preen", "auto", "yes"])]
    ask: bool,

    /// With -p: check even if the volume was unmounted
    #[arg(short = 'f', long)]
    pub(crate) force: bool,

    /// Read all data and compare it with its checksums; with -y wrong blocks become holes
    #[arg(long)]
    pub(crate) data: bool,

    /// Check the SSD cache of the volume, too; a repair empties a damaged one. For a volume in an object store: the local
    /// cache, through which a repair writes
    #[arg(long, value_name = "SSD")]
    pub(crate) cache: Option<PathBuf>,

    /// Key of a volume whose objects are encrypted
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// List every finding and loss, notes, and the length of the log past the checkpoint
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Block device, image file, or URL of an object store
    #[arg(required = true)]
    pub(crate) device: Option<PathBuf>,
}

impl CheckArguments {
    /// Returns the same arguments without an SSD cache.
    pub(crate) fn without_cache(&self) -> Self {
        Self { cache: None, ..self.clone() }
    }

    /// Returns the mode that an option asks for.
    pub(crate) fn mode(&self) -> Option<RunMode> {
        match self {
            Self { no: true, .. } => Some(RunMode::Check),
            Self { yes: true, .. } => Some(RunMode::Repair),
            Self { preen, auto, .. } if *preen || *auto => Some(RunMode::Preen),
            Self { ask: true, .. } => Some(RunMode::Ask),
            _ => None,
        }
    }
}
