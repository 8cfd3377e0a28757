//! `sfs-ctl report`: one HTML page about a volume.

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use sfs::command_line::ReportArguments;
use sfs::private_file::PrivateFile;
use sfs::{ExitError, hot_command, segments_command, stat};
use sfs_core::format::UtcTime;

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
    UtcTime(now.as_secs().cast_signed()).to_string()
}
