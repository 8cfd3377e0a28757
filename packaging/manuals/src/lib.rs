//! Manual pages and completions of the programs, made from their command lines.
//!
//! Every program and every command of `sfs-ctl` and `sfs-fsck` has a page in section 8. sfs(5) has the mount options, from the
//! table of the parser. The output depends on nothing but the sources.
#![forbid(unsafe_code)]

mod completions;
mod options_page;
mod pages;

use clap::{Command, CommandFactory as _};

pub use completions::completions;
pub use pages::pages;

/// A file to install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFile {
    /// Path below `/usr/share`.
    pub path: String,
    /// Content.
    pub text: String,
}

/// Returns the command lines of the programs that people run.
pub fn programs() -> Vec<Command> {
    vec![
        sfs::command_line::MountArguments::command(),
        sfs::command_line::UmountArguments::command(),
        sfs::command_line::CtlArguments::command(),
        sfs_mkfs::MkfsOptions::command(),
        sfs_fsck::command(),
    ]
}
