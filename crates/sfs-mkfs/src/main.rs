//! `sfs-mkfs`: makes an SFS volume.
//!
//! The program parses the command line, shows progress, and prints the result. The exit code is 0
//! if a volume was made, or would be with `--dry-run`, and 1 otherwise. An error is one line on
//! stderr that begins with the program's name.

use std::cell::OnceCell;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use indicatif::{ProgressBar, ProgressStyle};
use sfs_mkfs::{Made, MkfsError, MkfsOptions, make_with, output};

fn main() -> ExitCode {
    let options = match MkfsOptions::try_parse() {
        Ok(options) => options,
        Err(error) => return usage(&error),
    };
    let bar = Bar::new(if options.probe { "probing" } else { "erasing" });
    let made = make_with(&options, &mut |done, total| bar.show(done, total));
    bar.clear();
    match made {
        Ok(made) => match report(&options, &made) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(error),
        },
        Err(error) => {
            if let MkfsError::Faulty { verdict, .. } = &error
                && options.json
            {
                // If stdout has no reader, the message on stderr has the same verdict.
                let _ =
                    output::print(format_args!("{}\n", serde_json::json!({ "probed": verdict })));
            }
            fail(error)
        }
    }
}

fn fail(error: impl Display) -> ExitCode {
    output::complain(format_args!("sfs-mkfs: {error}"));
    ExitCode::FAILURE
}

/// Progress of a probe, or of the search for an earlier volume, in bytes; shown on a terminal only.
struct Bar {
    /// Name of the work.
    work: &'static str,
    bar: OnceCell<ProgressBar>,
}

impl Bar {
    fn new(work: &'static str) -> Self {
        Self { work, bar: OnceCell::new() }
    }

    fn show(&self, done: u64, total: u64) {
        let bar = self.bar.get_or_init(|| {
            let template =
                "{msg}  {wide_bar} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";
            let style = ProgressStyle::with_template(template).expect("the template is a constant");
            ProgressBar::new(total).with_style(style).with_message(self.work)
        });
        bar.set_position(done);
    }

    fn clear(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

/// Prints an error of the command line, and returns the exit code: 1, or 0 for help and version.
fn usage(error: &clap::Error) -> ExitCode {
    // If the terminal is gone, the message has no reader.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn report(options: &MkfsOptions, made: &Made) -> io::Result<()> {
    if options.json {
        output::print(format_args!("{}\n", serde_json::json!(made)))
    } else if !options.quiet {
        output::print(format_args!("{made}\n"))?;
        let Some(key) = &options.new_key_file else { return Ok(()) };
        let key = key.display();
        output::print(format_args!(
            "  key       {key}; nobody can read the volume without it: keep a copy elsewhere\n"
        ))
    } else {
        Ok(())
    }
}
