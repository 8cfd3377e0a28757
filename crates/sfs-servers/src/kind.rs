//! The servers that are tried, and where their programs are.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

/// A server of an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// The simulated store of this crate.
    Simulated,
    /// versitygw, with a directory behind it.
    Versitygw,
    /// MinIO with one drive.
    Minio,
    /// The gateway of Ceph, with one monitor and one OSD in memory.
    Rgw,
    /// Azurite, Microsoft's emulator of Azure.
    Azurite,
}

impl ServerKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Simulated, Self::Versitygw, Self::Minio, Self::Rgw, Self::Azurite];

    /// Returns the kind of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Versitygw => "versitygw",
            Self::Minio => "minio",
            Self::Rgw => "rgw",
            Self::Azurite => "azurite",
        }
    }

    /// Returns the program of the server and how to get it.
    fn program_name(self) -> (&'static str, &'static str) {
        match self {
            Self::Simulated => ("", ""),
            Self::Versitygw => {
                ("versitygw", "go install github.com/versity/versitygw/cmd/versitygw@latest")
            }
            Self::Minio => ("minio", "a release of MinIO"),
            Self::Rgw => ("radosgw", "apt-get install radosgw ceph-mon ceph-osd"),
            Self::Azurite => ("azurite-blob", "npm install azurite"),
        }
    }

    /// Returns the path of the server's program: in `tools`, in `PATH`, or where Go installs programs.
    ///
    /// # Errors
    ///
    /// The missing program, and how to get it.
    pub fn program(self, tools: &Path) -> Result<PathBuf, String> {
        let (name, remedy) = self.program_name();
        find_program(name, tools).ok_or_else(|| format!("{name} is missing: {remedy}"))
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the path of a program.
pub(crate) fn find_program(name: &str, tools: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let ours = [tools.join("bin"), tools.join("node_modules/.bin")];
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let of_go = env::home_dir().map(|home| home.join("go/bin"));
    let dirs = ours.into_iter().chain(env::split_paths(&path)).chain(system).chain(of_go);
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}
