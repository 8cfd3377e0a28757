//! Files outside of the measured volumes that the programs read: packages, a repository, layers.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::{dpkg, git, image, load::Program};
use crate::{scratch::Scratch, workspace::Workspace};

/// Inputs of the chosen programs.
#[derive(Default)]
pub(super) struct Materials {
    /// Repository that is cloned.
    pub(super) repository: PathBuf,
    /// Revisions that are checked out.
    pub(super) revisions: Vec<String>,
    /// Packages that are unpacked.
    pub(super) packages: Vec<PathBuf>,
    /// Layers of the container image, the lowest first.
    pub(super) layers: Vec<PathBuf>,
}

impl Materials {
    /// Makes the inputs of `program` within `scratch`; packages are kept in cargo's target directory.
    pub(super) fn add(
        &mut self,
        program: Program,
        workspace: &Workspace,
        scratch: &Scratch,
    ) -> Result<()> {
        self.repository.clone_from(&workspace.root);
        match program {
            Program::Git => self.revisions = git::revisions(&self.repository)?,
            Program::Dpkg => {
                self.packages = dpkg::packages(&workspace.target.join("bench-card/packages"))?;
            }
            Program::Image if self.layers.is_empty() => {
                self.layers = image::layers(&self.repository, &scratch.directory("layers")?)?;
            }
            Program::Together => {
                for single in Program::SINGLE {
                    self.add(single, workspace, scratch).with_context(|| single.name())?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
