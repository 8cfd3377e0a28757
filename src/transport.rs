//! How requests come from the kernel and answers get there.
//!
//! Owns: the choice, and what each transport is told at the start.
//! Promises: whatever is chosen, the same shell gives the answers.
//! Never: mounts; knows what a request is about.

mod dev;
mod reference;

use std::fmt;
use std::fs::File;
use std::io;

use clap::ValueEnum;

use crate::fuse::Shell;

/// What the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// What serves best here.
    #[default]
    Auto,
    /// `/dev/fuse`, by our own hand.
    Dev,
    /// `/dev/fuse`, through the library fuser: the reference, which syncfs(2) does not reach.
    Fuser,
}

/// What is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Dev,
    Fuser,
}

impl Choice {
    pub(crate) fn transport(self) -> Transport {
        match self {
            Self::Auto | Self::Dev => Transport::Dev,
            Self::Fuser => Transport::Fuser,
        }
    }
}

/// As `--transport` has it.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dev => "dev",
            Self::Fuser => "fuser",
        })
    }
}

/// A mount that is ready to be served.
pub(crate) enum Serving {
    Dev(dev::Serving),
    Fuser(reference::Serving),
}

impl Transport {
    /// Shakes hands with the kernel over `door`, a /dev/fuse that was mounted with.
    pub(crate) fn open(self, door: File, shell: Shell, threads: usize) -> io::Result<Serving> {
        match self {
            Self::Dev => dev::Serving::open(door, shell, threads).map(Serving::Dev),
            Self::Fuser => reference::Serving::open(door, shell, threads).map(Serving::Fuser),
        }
    }
}

impl Serving {
    /// Serves until it is unmounted.
    pub(crate) fn run(self) -> io::Result<()> {
        match self {
            Self::Dev(serving) => serving.run(),
            Self::Fuser(serving) => serving.run(),
        }
    }
}
