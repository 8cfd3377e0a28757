//! The tree of a crate's modules, and the module that a path means.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::source::{Child, Import, SourceFile};

/// Re-exports that a path may pass through. Rust forbids cycles of them; the limit catches a misreading.
const REEXPORTS_MAX: usize = 16;

/// All modules of one module tree; the first is its root.
pub(super) struct Modules {
    all: Vec<Module>,
}

pub(super) struct Module {
    /// Names from the root down, without `crate`.
    pub(super) path: Vec<String>,
    pub(super) file: PathBuf,
    pub(super) source: SourceFile,
    parent: Option<usize>,
    children: Vec<usize>,
}

/// Meaning of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A module itself.
    Module(usize),
    /// An item of a module.
    Item(usize),
}

impl Modules {
    /// Reads the tree that begins in the file `root`; `read` returns the text of a file, if there is one.
    pub(super) fn read(root: &Path, mut read: impl FnMut(&Path) -> Option<String>) -> Result<Self> {
        let text = read(root).context("no such file")?;
        let dir = root.parent().unwrap_or(Path::new("")).to_owned();
        let mut modules = Self { all: Vec::new() };
        modules.add(root, &dir, SourceFile::read(&text)?, None, Vec::new(), &mut read)?;
        Ok(modules)
    }

    /// Adds a module whose children have their files in `dir`, and everything below it.
    fn add(
        &mut self,
        file: &Path,
        dir: &Path,
        mut source: SourceFile,
        parent: Option<usize>,
        path: Vec<String>,
        read: &mut impl FnMut(&Path) -> Option<String>,
    ) -> Result<()> {
        let index = self.all.len();
        let children = std::mem::take(&mut source.children);
        let module = Module { path, file: file.to_owned(), source, parent, children: Vec::new() };
        self.all.push(module);
        if let Some(parent) = parent {
            self.all[parent].children.push(index);
        }
        for Child { name, body } in children {
            let path = [self.all[index].path.as_slice(), std::slice::from_ref(&name)].concat();
            let below = dir.join(&name);
            let (file, source) = match body {
                Some(body) => (file.to_owned(), body),
                None => read_child(&below, read)
                    .with_context(|| format!("{}: `mod {name}`", file.display()))?,
            };
            self.add(&file, &below, source, Some(index), path, read)?;
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, index: usize) -> &Module {
        &self.all[index]
    }

    /// Returns whether `outer` is `inner` or encloses it.
    pub(super) fn encloses(&self, outer: usize, inner: usize) -> bool {
        self.all[inner].path.starts_with(&self.all[outer].path)
    }

    /// Returns the nearest module that encloses both.
    pub(super) fn nearest_enclosing(&self, one: usize, other: usize) -> usize {
        let mut outer = one;
        while !self.encloses(outer, other) {
            outer = self.all[outer].parent.unwrap_or(0);
        }
        outer
    }

    /// Returns the target of `path` in the module `from`; `None` if `path` leads out of the crate.
    pub(super) fn resolve(&self, from: usize, path: &[String]) -> Option<Target> {
        self.follow(from, path, from, None, REEXPORTS_MAX)
    }

    /// Returns the target of an import of the module `from`.
    pub(super) fn resolve_import(&self, from: usize, import: &Import) -> Option<Target> {
        self.follow(from, &import.path, from, Some(import), REEXPORTS_MAX)
    }

    /// Resolves `path` in `from` for the module `reader`. `except` is the import being resolved,
    /// which cannot resolve its own first segment.
    fn follow(
        &self,
        from: usize,
        path: &[String],
        reader: usize,
        except: Option<&Import>,
        reexports: usize,
    ) -> Option<Target> {
        let reexports = reexports.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => 0,
            "self" => from,
            "super" => self.all[from].parent?,
            name => match self.child(from, name) {
                Some(child) => child,
                None => {
                    let is_it = |import: &&Import| import.name == name && Some(*import) != except;
                    let import = self.all[from].source.imports.iter().find(is_it)?;
                    match self.follow(from, &import.path, reader, Some(import), reexports)? {
                        Target::Module(module) => module,
                        item => return Some(item),
                    }
                }
            },
        };
        self.descend(start, rest, reader, reexports)
    }

    /// Resolves the segments of a path after the one that means the module `module`.
    fn descend(
        &self,
        mut module: usize,
        path: &[String],
        reader: usize,
        reexports: usize,
    ) -> Option<Target> {
        for (at, segment) in path.iter().enumerate() {
            module = match segment.as_str() {
                "self" => module,
                "super" => self.all[module].parent?,
                name => match self.child(module, name) {
                    Some(child) => child,
                    None => return self.item(module, &path[at..], reader, reexports),
                },
            };
        }
        Some(Target::Module(module))
    }

    /// Resolves `path`, which begins with the name of no child of `module`.
    fn item(
        &self,
        module: usize,
        path: &[String],
        reader: usize,
        reexports: usize,
    ) -> Option<Target> {
        let SourceFile { items, imports, .. } = &self.all[module].source;
        let (name, rest) = path.split_first()?;
        // Re-exports of a module that does not enclose the reader are not followed.
        if name == "*" || items.contains(name) || !self.encloses(module, reader) {
            return Some(Target::Item(module));
        }
        if let Some(import) = imports.iter().find(|import| import.name == *name) {
            let path = [&import.path, rest].concat();
            return self.follow(module, &path, reader, Some(import), reexports);
        }
        for glob in imports.iter().filter(|import| import.name == "*") {
            let target = self.follow(module, &glob.path, reader, Some(glob), reexports);
            if let Some(Target::Item(found)) = target
                && found != module
                && self.all[found].source.names(name)
            {
                return self.descend(found, path, reader, reexports);
            }
        }
        let is_exported = |other: &usize| self.all[*other].source.macros.contains(name);
        let exporter = (0..self.all.len()).find(is_exported).filter(|_| module == 0);
        Some(Target::Item(exporter.unwrap_or(module)))
    }

    fn child(&self, module: usize, name: &str) -> Option<usize> {
        let mut children = self.all[module].children.iter().copied();
        children.find(|child| self.all[*child].path.last().is_some_and(|last| last == name))
    }
}

impl SourceFile {
    /// Returns whether the module declares or imports `name`.
    fn names(&self, name: &str) -> bool {
        self.items.contains(name) || self.imports.iter().any(|import| import.name == name)
    }
}

/// Reads the file of a module: `below.rs`, or `mod.rs` in the directory `below`.
fn read_child(
    below: &Path,
    read: &mut impl FnMut(&Path) -> Option<String>,
) -> Result<(PathBuf, SourceFile)> {
    for file in [below.with_extension("rs"), below.join("mod.rs")] {
        if let Some(text) = read(&file) {
            let source = SourceFile::read(&text).with_context(|| format!("{}", file.display()))?;
            return Ok((file, source));
        }
    }
    anyhow::bail!("neither {0}.rs nor {0}/mod.rs can be read", below.display())
}
