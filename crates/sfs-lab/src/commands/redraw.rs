//! `sfs-lab redraw`: draws the figures of `docs/lab` again from the data that is committed beside
//! them, without running an experiment.

use std::path::PathBuf;

use anyhow::Result;
use sfs_lab::report::{Document, FIGURES};
use sfs_mkfs::output;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder of the documents, which contains lab/.
    #[arg(long, default_value = "docs")]
    docs: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let document = Document::new(&arguments.docs);
    for figure in &FIGURES {
        document.redraw(figure)?;
        output::print(format_args!("{}\n", figure.name))?;
    }
    Ok(())
}
