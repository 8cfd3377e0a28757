//! The file of a trace, which must not be on the traced volume: each of its writes would be traced, too.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sfs_system::mountinfo::DeviceNumber;

use crate::exit_error::{self, ExitError};
use crate::private_file::PrivateFile;

/// File or standard output.
pub(super) enum OutputFile {
    New(PrivateFile),
    Output(File),
}

impl OutputFile {
    /// Makes a file for `path`; one that exists is replaced if `force`, once the trace begins. `traced` is the device number
    /// of the traced filesystem.
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
            return if is_own { Err(refusal()) } else { Ok(Self::Output(file)) };
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = fs::metadata(parent.unwrap_or(Path::new("."))).map_err(|e| failed(&e))?;
        if is_traced(&directory) {
            return Err(refusal());
        }
        let new = PrivateFile::create(path, force).map_err(|error| failed(&error))?;
        // The directory may be an overlay over the traced volume.
        if new.file.metadata().is_ok_and(|file| is_traced(&file)) {
            return Err(refusal());
        }
        Ok(Self::New(new))
    }

    /// Replaces an older file: the trace begins.
    pub(super) fn take_place(&mut self) -> io::Result<()> {
        match self {
            Self::New(new) => new.take_place(),
            Self::Output(_) => Ok(()),
        }
    }

    fn file(&mut self) -> &mut File {
        match self {
            Self::New(new) => &mut new.file,
            Self::Output(file) => file,
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}
