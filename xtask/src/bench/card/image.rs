//! A container image, unpacked as an overlay snapshotter does: each layer into its own directory, synced.
//!
//! The image is a stand-in, made of this repository's files: a layer of all files, a layer that changes
//! some of them and adds hard links, a layer with whiteouts and an opaque directory, and one of small files.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{
    git,
    load::{Place, Program, UnitLoad, sync_filesystem, timed},
    process::finish,
};
use crate::{machine, run::Cmd, tree};

const SMALL_FILES: u32 = 300;

pub(super) fn need() -> Result<()> {
    if !machine::is_root() {
        bail!("whiteouts need root");
    }
    git::need()?;
    machine::need("tar", "tar")
}

/// Makes the layers as archives in `dir`.
pub(super) fn layers(repository: &Path, dir: &Path) -> Result<Vec<PathBuf>> {
    let trees: Vec<PathBuf> = (0..4).map(|no| dir.join(format!("tree-{no}"))).collect();
    trees.iter().try_for_each(fs::create_dir)?;
    let sources = dir.join("sources.tar");
    git::archive(repository, &sources)?;
    extract(&sources, &trees[0], &dir.join("errors")).context("sources")?;
    let files: Vec<PathBuf> = tree::walk(&trees[0])?
        .into_iter()
        .filter_map(|entry| entry.meta.is_file().then_some(entry.path))
        .collect();
    for (no, path) in files.iter().enumerate() {
        let [_, changed, removed, _] = [0, 1, 2, 3].map(|no| trees[no].join(path));
        if no % 4 == 0 {
            let text = fs::read(trees[0].join(path))?;
            fs::create_dir_all(changed.parent().context("a file has a directory")?)?;
            fs::write(&changed, [&text[..], b"\n// changed\n"].concat())?;
            if no % 16 == 0 {
                fs::hard_link(&changed, changed.with_extension("link"))?;
            }
        } else if no % 10 == 1 {
            fs::create_dir_all(removed.parent().context("a file has a directory")?)?;
            mknodat(CWD, &removed, FileType::CharacterDevice, Mode::empty(), 0)?;
        }
    }
    for no in 0..SMALL_FILES {
        fs::write(trees[3].join(format!("small-{no}")), format!("setting {no}\n").repeat(20))?;
    }
    trees.iter().map(|tree| pack(tree)).collect()
}

fn pack(tree: &Path) -> Result<PathBuf> {
    fs::set_permissions(tree, fs::Permissions::from_mode(0o755))?;
    let archive = tree.with_extension("layer.tar");
    Cmd::new("tar").arg("-cf").arg(&archive).arg("-C").arg(tree).arg(".").read()?;
    Ok(archive)
}

fn extract(archive: &Path, dir: &Path, errors: &Path) -> Result<()> {
    finish(Cmd::new("tar").arg("-xf").arg(archive).arg("-C").arg(dir), errors)
}

pub(super) struct Image {
    dir: PathBuf,
    layers: Vec<PathBuf>,
    errors: PathBuf,
    /// Number of layers unpacked so far.
    unpacked: usize,
}

pub(super) fn prepare(place: &Place<'_>) -> Result<Image> {
    let layers = place.materials.layers.clone();
    let errors = place.outside.join("errors");
    Ok(Image { dir: place.dir.clone(), layers, errors, unpacked: 0 })
}

impl UnitLoad for Image {
    const PROGRAM: Program = Program::Image;

    fn unit(&mut self) -> Result<Duration> {
        let (image, layer) = (self.unpacked / self.layers.len(), self.unpacked % self.layers.len());
        let path = |image: usize| self.dir.join(format!("image-{image}"));
        if layer == 0 && image > 0 {
            fs::remove_dir_all(path(image - 1))?;
        }
        let dir = path(image).join(format!("{layer}/fs"));
        let archive = &self.layers[layer];
        self.unpacked += 1;
        timed(|| {
            fs::create_dir_all(&dir)?;
            extract(archive, &dir, &self.errors)?;
            sync_filesystem(&dir)
        })
    }
}
