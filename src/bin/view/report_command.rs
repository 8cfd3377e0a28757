//! `sfs-ctl report`: one HTML page about a volume.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use sfs::private_file::PrivateFile;
use sfs::{ExitError, hot_command, segments_command, stat};

/// Arguments of `sfs-ctl report`.
#[derive(Args)]
pub(crate) struct ReportArguments {
    /// Mount point, block device or image file of the volume
    path: PathBuf,
    /// File to write, or - for the standard output
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// Overwrite the file
    #[arg(short, long)]
    force: bool,
}

/// Number of files that the page names.
const FILES: usize = 10;

/// Writes the page.
pub(crate) fn run(arguments: &ReportArguments) -> Result<(), ExitError> {
    let numbers = stat::stat(&arguments.path)?.to_json();
    let segments = segments_command::segments(&arguments.path)?.to_json();
    // The rest of the page is worth having without the files.
    let files = hot_command::json(&arguments.path, FILES).ok();
    let page = sfs_view::report_page(&numbers, &segments, files.as_deref(), &made())
        .map_err(|error| ExitError::mount(format_args!("{}: {error}", arguments.path.display())))?;
    if arguments.output.as_os_str() == "-" {
        return sfs_system::output::print(page).map_err(ExitError::system);
    }
    write(&arguments.output, arguments.force, &page)
}

/// Writes a file that only this user can read: the page has names of files. An existing file is left alone unless `force`.
fn write(path: &Path, force: bool, page: &str) -> Result<(), ExitError> {
    let shown = path.display();
    let written = PrivateFile::create(path, force).and_then(|mut new| {
        new.file.write_all(page.as_bytes())?;
        new.take_place()
    });
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            ExitError::usage(format_args!("{shown}: exists; --force overwrites it"))
        }
        _ => ExitError::system(format_args!("{shown}: {error}")),
    })
}

/// Returns the present time as text, in UTC.
fn made() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    utc(now.as_secs())
}

/// Returns a time in seconds since 1970 as text, in UTC.
fn utc(secs: u64) -> String {
    let (days, rest) = (secs / 86_400, secs % 86_400);
    // Days from 1 March of year 0 on, in eras of 400 years: leap days come last in a year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3_600, rest / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_795_689_000), "2026-11-26 10:30 UTC");
        assert_eq!(utc(4_107_542_399), "2100-02-28 23:59 UTC");
    }
}
