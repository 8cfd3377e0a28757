//! The Debian package, laid out by `packaging/debian/contents.txt` and packed by dpkg-deb.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    dist::{ARCHITECTURE, environment, sbom_document},
    machine,
    run::Cmd,
    workspace::Workspace,
};

const PACKAGE: &str = "sfs-tools";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Documents for administrators, in /usr/share/doc.
const DOCUMENTS: [&str; 4] = ["installing.md", "promises.md", "SEMANTICS.md", "sfs-ctl.md"];

/// Line of `packaging/debian/contents.txt`.
pub(crate) struct Entry {
    mode_or_arrow: String,
    source: String,
    /// Path in the package, relative to the root.
    pub(crate) destination: String,
}

/// Returns the files of the package besides those that are generated.
pub(crate) fn contents(workspace: &Workspace) -> Result<Vec<Entry>> {
    let path = workspace.root.join("packaging/debian/contents.txt");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [mode, source, destination] => Ok(Entry {
                mode_or_arrow: mode.to_owned(),
                source: source.to_owned(),
                destination: destination.to_owned(),
            }),
            _ => bail!("{}: {line}", path.display()),
        })
        .collect()
}

/// Returns the name of the package's file.
pub(crate) fn file_name() -> String {
    format!("{PACKAGE}_{VERSION}_{ARCHITECTURE}.deb")
}

/// Builds the package in `out` from the programs in the directory `programs`, and returns its path. `level` is the compression of
/// xz, 0 to 9.
pub(crate) fn build(
    workspace: &Workspace,
    programs: &Path,
    out: &Path,
    level: u32,
) -> Result<PathBuf> {
    machine::need("dpkg-deb", "dpkg")?;
    machine::need("dpkg-shlibdeps", "dpkg-dev")?;
    machine::need("strip", "binutils")?;
    let tree = out.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    for entry in contents(workspace)? {
        install(workspace, programs, &tree, &entry)?;
    }
    generate(programs, &tree)?;
    let date = environment::source_date(workspace)?;
    documents(workspace, &tree, &date)?;
    control(workspace, &tree)?;
    let package = out.join(file_name());
    Cmd::new("dpkg-deb")
        .env("SOURCE_DATE_EPOCH", &date)
        // More threads would cut the archive into other blocks on another machine.
        .args(["--root-owner-group", "--threads-max=1", "-Zxz"])
        .args([&format!("-z{level}"), "--build"])
        .arg(&tree)
        .arg(&package)
        .read()?;
    Ok(package)
}

fn install(workspace: &Workspace, programs: &Path, tree: &Path, entry: &Entry) -> Result<()> {
    let to = tree.join(&entry.destination);
    make_parent(&to)?;
    if entry.mode_or_arrow == "->" {
        return symlink(&entry.source, &to).with_context(|| to.display().to_string());
    }
    let mode = u32::from_str_radix(&entry.mode_or_arrow, 8).context("the mode is octal")?;
    match (entry.source.strip_prefix('/'), entry.source.strip_prefix("bin/")) {
        (Some(file), _) => copy(&workspace.root.join(file), &to)?,
        (_, Some(program)) => {
            copy(&programs.join(program), &to)?;
            let sections = ["--strip-unneeded", "-R", ".comment", "-R", ".note"];
            Cmd::new("strip").args(sections).arg(&to).read()?;
        }
        _ => bail!("{}: a source begins with / or bin/", entry.source),
    }
    set_mode(&to, mode)
}

/// Adds manual pages and completions.
fn generate(programs: &Path, tree: &Path) -> Result<()> {
    let share = tree.join("usr/share");
    Cmd::new(programs.join("sfs-manuals")).arg(&share).run()?;
    for section in ["man/man5", "man/man8"] {
        for entry in fs::read_dir(share.join(section))? {
            compress(&entry?.path())?;
        }
    }
    Ok(())
}

/// Adds the changelog, the list of crates and the documents.
fn documents(workspace: &Workspace, tree: &Path, date: &str) -> Result<()> {
    let dir = tree.join("usr/share/doc").join(PACKAGE);
    fs::create_dir_all(&dir)?;
    let date =
        Cmd::new("date").env("LC_ALL", "C").args(["-u", "-R", "-d", &format!("@{date}")]).read()?;
    let changelog = format!(
        "{PACKAGE} ({VERSION}) unstable; urgency=medium\n\n  * Version {VERSION} of SFS; CHANGELOG.md of the sources \
         has the changes.\n\n -- The authors of SFS <sfs@example.invalid>  {date}\n"
    );
    fs::write(dir.join("changelog"), changelog)?;
    compress(&dir.join("changelog"))?;
    fs::write(dir.join(format!("{PACKAGE}.spdx.json")), sbom_document(workspace)?)?;
    for name in DOCUMENTS {
        copy(&workspace.root.join("docs").join(name), &dir.join(name))?;
    }
    // Debian's policy wants no exact limit, only that large documents are compressed.
    for name in [&format!("{PACKAGE}.spdx.json")[..]].iter().chain(DOCUMENTS.iter()) {
        compress(&dir.join(name))?;
    }
    Ok(())
}

/// Adds the files for dpkg itself.
fn control(workspace: &Workspace, tree: &Path) -> Result<()> {
    set_modes(tree)?;
    let from = workspace.root.join("packaging/debian");
    let to = tree.join("DEBIAN");
    fs::create_dir_all(&to)?;
    for name in ["postinst", "prerm", "postrm"] {
        copy(&from.join(name), &to.join(name))?;
        set_mode(&to.join(name), 0o755)?;
    }
    let (sums, bytes) = sums(tree)?;
    fs::write(to.join("md5sums"), sums)?;
    let control = fs::read_to_string(from.join("control"))?
        .replace("@VERSION@", VERSION)
        .replace("@ARCHITECTURE@", ARCHITECTURE)
        .replace("@INSTALLED_SIZE@", &bytes.div_ceil(1024).to_string())
        .replace("@DEPENDS@", &libraries(tree)?);
    fs::write(to.join("control"), control)?;
    Ok(())
}

/// Returns the packages with the shared libraries of the programs.
fn libraries(tree: &Path) -> Result<String> {
    // dpkg-shlibdeps wants to run in a source package.
    let source = tree.with_file_name("shlibdeps");
    fs::create_dir_all(source.join("debian"))?;
    let control =
        format!("Source: {PACKAGE}\n\nPackage: {PACKAGE}\nArchitecture: {ARCHITECTURE}\n");
    fs::write(source.join("debian/control"), control)?;
    let mut cmd = Cmd::new("dpkg-shlibdeps").dir(&source).arg("-O");
    let mut programs: Vec<PathBuf> = Vec::new();
    for dir in ["usr/bin", "usr/lib/udev"] {
        for entry in fs::read_dir(tree.join(dir))? {
            let path = entry?.path();
            programs.extend(path.is_file().then_some(path));
        }
    }
    programs.sort();
    for program in programs {
        cmd = cmd.arg(program.canonicalize()?);
    }
    let said = cmd.output()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let depends = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    let explained = || String::from_utf8_lossy(&said.stderr).into_owned();
    Ok(depends.with_context(explained)?.to_owned())
}

/// Returns the file `md5sums` of the package, and the number of bytes of all files.
fn sums(tree: &Path) -> Result<(String, u64)> {
    let listed = Cmd::new("find").dir(tree).args(["usr", "-type", "f"]).read()?;
    let mut files: Vec<&str> = listed.lines().collect();
    files.sort_unstable();
    let text = Cmd::new("md5sum").dir(tree).args(&files).read()?;
    let lens = files.iter().map(|file| Ok(fs::metadata(tree.join(file))?.len()));
    Ok((text + "\n", lens.sum::<Result<u64>>()?))
}

/// Gives directories and generated files the modes of a package, whatever the umask is.
fn set_modes(tree: &Path) -> Result<()> {
    Cmd::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(tree).read().map(drop)
}

fn compress(path: &Path) -> Result<()> {
    Cmd::new("gzip").args(["-9", "-n", "-f"]).arg(path).read().map(drop)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    set_mode(to, 0o644)
}

fn make_parent(path: &Path) -> Result<()> {
    fs::create_dir_all(path.parent().context("the path has a directory")?)?;
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| path.display().to_string())
}
