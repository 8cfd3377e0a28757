//! `sfs-mkfs`: makes an SFS volume.
//!
//! Owns: exit codes (0 made, 1 not) and what is printed.
//! Promises: errors are one line on stderr that begins with the program's name.
//! Never: decides anything.

use std::cell::OnceCell;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use indicatif::{ProgressBar, ProgressStyle};
use sfs_mkfs::{Made, Options, make_with, output};

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => return usage(&error),
    };
    let bar = Bar::default();
    let made = make_with(&options, &mut |done, total| bar.show(done, total));
    bar.clear();
    match made {
        Ok(made) => match report(&options, &made) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(error),
        },
        Err(error) => fail(error),
    }
}

fn fail(error: impl Display) -> ExitCode {
    output::complain(format_args!("sfs-mkfs: {error}"));
    ExitCode::FAILURE
}

/// How far a probe is: shown on a terminal only.
#[derive(Default)]
struct Bar(OnceCell<ProgressBar>);

impl Bar {
    fn show(&self, done: u64, total: u64) {
        let bar = self.0.get_or_init(|| {
            let template = "probing    {wide_bar} {percent:>3}%  {per_sec} requests  {eta} left";
            let style = ProgressStyle::with_template(template).expect("the template is a constant");
            ProgressBar::new(total).with_style(style)
        });
        bar.set_position(done);
    }

    fn clear(&self) {
        if let Some(bar) = self.0.get() {
            bar.finish_and_clear();
        }
    }
}

/// mkfs(8) knows one code for every failure; help and version are none.
fn usage(error: &clap::Error) -> ExitCode {
    // If the terminal is gone, nobody is there to be told.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn report(options: &Options, made: &Made) -> io::Result<()> {
    if options.json {
        output::print(format_args!("{}\n", serde_json::json!(made)))
    } else if !options.quiet {
        output::print(format_args!("{made}\n"))
    } else {
        Ok(())
    }
}
