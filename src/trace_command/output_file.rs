//! The file of a trace, which must not be on the traced volume: each of its writes would be traced, too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sfs_system::mountinfo::DeviceNumber;

use crate::exit_error::{self, ExitError};

/// Permissions of the file: a trace tells what a user's programs do.
const MODE: u32 = 0o600;

/// File or standard output.
pub(super) struct OutputFile {
    file: File,
    /// Path of a file that this process has made.
    made: Option<PathBuf>,
}

impl OutputFile {
    /// Makes the file at `path`, or empties an existing one if `force`. `traced` is the device number of the traced
    /// filesystem. Symbolic links are not followed.
    pub(super) fn open(path: &Path, force: bool, traced: DeviceNumber) -> Result<Self, ExitError> {
        let shown = path.display();
        let failed = |error: &io::Error| {
            let reason = match error.kind() {
                ErrorKind::AlreadyExists => "exists; -f overwrites it".to_owned(),
                _ => exit_error::reason(error),
            };
            ExitError::usage(format_args!("{shown}: {reason}"))
        };
        let is_traced = |file: &fs::Metadata| {
            let number = file.dev();
            let own =
                DeviceNumber { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
            own == traced
        };
        let refusal = || {
            ExitError::usage(format_args!(
                "{shown}: is on the traced volume, and each of its writes would be traced; give a file elsewhere"
            ))
        };
        if path.as_os_str() == "-" {
            let stdout = io::stdout().as_fd().try_clone_to_owned();
            let file = File::from(stdout.map_err(|error| failed(&error))?);
            let is_own = file.metadata().is_ok_and(|file| file.is_file() && is_traced(&file));
            return if is_own { Err(refusal()) } else { Ok(Self { file, made: None }) };
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = fs::metadata(parent.unwrap_or(Path::new("."))).map_err(|e| failed(&e))?;
        if is_traced(&directory) {
            return Err(refusal());
        }
        let mut options = OpenOptions::new();
        options.write(true).mode(MODE).custom_flags(libc::O_NOFOLLOW);
        let (file, made) = match options.clone().create_new(true).open(path) {
            Err(error) if force && error.kind() == ErrorKind::AlreadyExists => {
                // The file may be a mount point of its own, so it is looked at before it is emptied.
                (options.open(path).map_err(|error| failed(&error))?, None)
            }
            opened => (opened.map_err(|error| failed(&error))?, Some(path.to_owned())),
        };
        let metadata = file.metadata().map_err(|error| failed(&error))?;
        if is_traced(&metadata) {
            return Err(refusal());
        }
        if metadata.is_file() {
            file.set_len(0).map_err(|error| failed(&error))?;
        }
        Ok(Self { file, made })
    }

    /// Removes the file if this process has made it, after a failure.
    pub(super) fn remove(&self) {
        if let Some(path) = &self.made {
            let _ = fs::remove_file(path);
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
