//! The folder of recorded traces, which the repository cannot contain because of their licences, and folders of a user's
//! own traces.
//!
//! `docs/lab/traces.md` has the origin and the checksum of each recorded trace.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use sfs_mkfs::output;

/// The command-line argument that names the folder.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct TraceFolder {
    /// Folder of the recorded traces; docs/lab/traces.md has their origins.
    #[arg(long, value_name = "DIR", env = "SFS_TRACES")]
    traces: Option<PathBuf>,
}

impl TraceFolder {
    /// Returns the path of the folder, if one is given.
    pub fn folder(&self) -> Option<&Path> {
        self.traces.as_deref()
    }

    /// Returns the path of the trace or folder `name` in the folder.
    ///
    /// # Errors
    ///
    /// If no folder is given, or the folder does not contain `name`; the message has the remedy.
    pub fn require(&self, name: impl AsRef<Path>) -> Result<PathBuf> {
        let name = name.as_ref();
        let folder = self.traces.as_ref().with_context(|| {
            format!(
                "{}: no folder of traces is given; name a folder with --traces or SFS_TRACES \
                 (docs/lab/traces.md has the origins of the traces)",
                name.display()
            )
        })?;
        let path = folder.join(name);
        if !path.exists() {
            bail!("{}: no such trace; docs/lab/traces.md has its origin", path.display());
        }
        Ok(path)
    }

    /// Returns the path of the trace `name`. Without the trace, reports on standard error that `name`
    /// is skipped.
    pub fn find(&self, name: impl AsRef<Path>) -> Option<PathBuf> {
        self.require(name)
            .inspect_err(|error| output::complain(format_args!("skipped: {error}")))
            .ok()
    }
}

/// Returns the files in `folder`, in the order of their names: not those of its folders, and no hidden ones.
///
/// # Errors
///
/// If the folder cannot be read, or has no such file.
pub fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let name = || folder.display().to_string();
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(name)? {
        let entry = entry.with_context(name)?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    if files.is_empty() {
        bail!("{}: no file in this folder", name());
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_or_trace_is_named_with_its_remedy() {
        let none = TraceFolder { traces: None };
        let message = none.require("a.csv.zst").expect_err("no folder").to_string();
        assert!(message.starts_with("a.csv.zst: ") && message.contains("SFS_TRACES"), "{message}");
        let dir = tempfile::tempdir().expect("a directory");
        let folder = TraceFolder { traces: Some(dir.path().to_owned()) };
        let message = folder.require("a.csv.zst").expect_err("no trace").to_string();
        assert!(message.contains("docs/lab/traces.md"), "{message}");
        std::fs::write(dir.path().join("a.csv.zst"), b"").expect("a file");
        assert_eq!(folder.find("a.csv.zst"), Some(dir.path().join("a.csv.zst")));
    }
}
