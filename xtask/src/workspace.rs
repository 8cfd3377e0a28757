//! Paths of the repository, and builds of its programs.

use std::{
    borrow::Cow,
    cell::Cell,
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use crate::{cargo::cargo, run::Cmd};

const PROGRAMS_AS_FOR_TESTS: [&str; 6] =
    ["build", "--quiet", "--workspace", "--bins", "--test", "mount_object"];

/// The repository and cargo's target directory.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    /// `true` once all tests are built, whose build has the programs, too.
    tests_are_built: Cell<bool>,
    /// `true` once all programs are built for [`Profile::Dev`].
    programs_are_built: Cell<bool>,
}

/// Build profile of programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    Release,
}

/// Directory of built programs, with the options to run them with.
#[derive(Clone)]
pub(crate) struct Programs {
    dir: PathBuf,
    transport: Option<String>,
    data_layout: Option<String>,
    /// Segment size of new volumes, as `sfs-mkfs` takes it.
    segment_size: Option<&'static str>,
    /// Mount options, each after its own `-o`.
    options: Vec<Cow<'static, str>>,
}

impl Programs {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the programs of another build, in `dir`.
    pub(crate) fn of_build(dir: &Path) -> Result<Self> {
        if !dir.join("sfs-mount").exists() {
            bail!("{}: there is no sfs-mount; build it with --release", dir.display());
        }
        let dir = dir.canonicalize()?;
        Ok(Self {
            dir,
            transport: None,
            data_layout: None,
            segment_size: None,
            options: Vec::new(),
        })
    }

    /// Sets the transport for mounting, instead of the one that `SFS_TRANSPORT` names.
    pub(crate) fn over(self, transport: &str) -> Self {
        Self { transport: Some(transport.to_owned()), ..self }
    }

    /// Sets the data layout of new volumes, instead of the one that `SFS_LAYOUT` names.
    pub(crate) fn with_layout(self, data_layout: &str) -> Self {
        Self { data_layout: Some(data_layout.to_owned()), ..self }
    }

    /// Replaces the mount options of `sfs-mount`, or of a kernel's filesystem, by `options`.
    pub(crate) fn with(self, options: Option<Cow<'static, str>>) -> Self {
        Self { options: options.into_iter().collect(), ..self }
    }

    /// Sets the segment size of new volumes, as `sfs-mkfs` takes it.
    pub(crate) fn with_segment_size(self, segment_size: Option<&'static str>) -> Self {
        Self { segment_size, ..self }
    }

    /// Prepares `sfs-mkfs` with the chosen data layout and segment size.
    pub(crate) fn mkfs_cmd(&self) -> Cmd {
        let data_layout = self.data_layout.iter().flat_map(|data_layout| ["--layout", data_layout]);
        let segment_size = self.segment_size.iter().flat_map(|size| ["--segment-size", size]);
        self.cmd("sfs-mkfs").args(data_layout).args(segment_size)
    }

    /// Prepares `sfs-mount` or the null filesystem with the chosen transport.
    pub(crate) fn mount_cmd(&self, name: &str) -> Cmd {
        let transport = self.transport.iter().flat_map(|transport| ["--transport", transport]);
        self.cmd(name).args(transport).args(self.option_arguments())
    }

    /// Returns the mount options as arguments of `sfs-mount` and of mount(8).
    pub(crate) fn option_arguments(&self) -> impl Iterator<Item = &str> {
        self.options.iter().flat_map(|list| ["-o", list.as_ref()])
    }

    pub(crate) fn cmd(&self, name: &str) -> Cmd {
        Cmd::new(self.path(name))
    }
}

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has a parent")?;
        // This program is target/PROFILE/xtask, whatever the configured target directory is.
        let own = env::current_exe()?;
        let target = own.parent().and_then(Path::parent).context("no target directory found")?;
        Ok(Self {
            root: root.to_owned(),
            target: target.to_owned(),
            tests_are_built: Cell::new(false),
            programs_are_built: Cell::new(false),
        })
    }

    /// Returns the directory of test programs and servers that are installed for this workspace alone.
    pub(crate) fn tools(&self) -> PathBuf {
        env::var_os("SFS_TOOLS").map_or_else(|| self.target.join("tools"), PathBuf::from)
    }

    /// Notes that `cargo test --workspace` has built everything: the programs for [`Profile::Dev`] are
    /// taken from that build from now on.
    pub(crate) fn share_test_build(&self) {
        self.tests_are_built.set(true);
    }

    /// Builds the programs of all packages for [`Profile::Dev`], with the features that their tests have: a test among the targets
    /// brings the features of the dependencies of tests.
    pub(crate) fn build_programs(&self) -> Result<()> {
        cargo(self).args(PROGRAMS_AS_FOR_TESTS).run()?;
        self.programs_are_built.set(true);
        Ok(())
    }

    /// Builds the programs of `packages`.
    ///
    /// A build of some packages has fewer features of their dependencies than a build of the whole
    /// workspace with its tests, so that most dependencies and crates would be compiled once more.
    pub(crate) fn build(&self, profile: Profile, packages: &[&str]) -> Result<Programs> {
        let mut cmd = cargo(self);
        if profile == Profile::Dev && self.programs_are_built.get() {
            cmd = cmd.args(PROGRAMS_AS_FOR_TESTS);
        } else if profile == Profile::Dev && self.tests_are_built.get() {
            cmd = cmd.args(["test", "--quiet", "--workspace", "--no-run"]);
        } else {
            cmd = cmd.args(["build", "--quiet", "--bins"]);
            cmd = packages.iter().fold(cmd, |cmd, package| cmd.args(["--package", package]));
        }
        let dir = match profile {
            Profile::Dev => "debug",
            Profile::Release => {
                cmd = cmd.arg("--release");
                "release"
            }
        };
        cmd.run()?;
        Ok(Programs {
            dir: self.target.join(dir),
            transport: env::var("SFS_TRANSPORT").ok(),
            data_layout: env::var("SFS_LAYOUT").ok(),
            segment_size: None,
            options: Vec::new(),
        })
    }
}
