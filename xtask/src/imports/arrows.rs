//! Arrows between the rooms of a crate, and the violations among them.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use super::{
    circles::{self, Knot},
    layers::{Circles, Layered},
    modules::{Modules, Target},
    source::Import,
};

/// A node of the import graph below a module: a child, or (`None`) the file of the module itself.
type Room = Option<String>;

/// Arrows between the rooms below one module, each with the first import that makes it.
type Arrows = BTreeMap<(Room, Room), Origin>;

/// Line of a file that names another room.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    file: PathBuf,
    line: usize,
}

/// A violation of the rules, as a text for the terminal.
#[derive(Debug)]
pub(super) struct ImportFault(String);

impl fmt::Display for ImportFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the cycles among the rooms of each module, and the imports of an upper layer.
pub(super) fn findings(modules: &Modules, layered: &Layered) -> Vec<ImportFault> {
    let mut findings = Vec::new();
    for (parent, arrows) in lifted(modules) {
        if parent == 0 {
            findings.extend(upward(modules, &arrows, layered));
        }
        let considered = |rooms: &&(Room, Room)| {
            layered.circles == Circles::WithParents || (rooms.0.is_some() && rooms.1.is_some())
        };
        let pairs: Vec<(Room, Room)> = arrows.keys().filter(considered).cloned().collect();
        for knot in circles::knots(&pairs) {
            findings.push(describe(modules, parent, &arrows, &knot));
        }
    }
    findings.extend(unlisted(modules, layered));
    findings
}

/// Returns the arrows of all modules, by the module below which the rooms lie.
fn lifted(modules: &Modules) -> BTreeMap<usize, Arrows> {
    let mut lifted = BTreeMap::<usize, Arrows>::new();
    for from in 0..modules.len() {
        for (to, line) in named(modules, from) {
            let parent = modules.nearest_enclosing(from, to);
            let room = |module: usize| {
                modules.get(module).path.get(modules.get(parent).path.len()).cloned()
            };
            let origin = Origin { file: modules.get(from).file.clone(), line };
            let arrow = lifted.entry(parent).or_default().entry((room(from), room(to)));
            arrow.and_modify(|first| *first = origin.clone().min(first.clone())).or_insert(origin);
        }
    }
    lifted
}

/// Returns the modules that `from` names, each with the line.
fn named(modules: &Modules, from: usize) -> Vec<(usize, usize)> {
    let source = &modules.get(from).source;
    let imports = source.imports.iter().filter_map(|import| {
        let target = modules.resolve_import(from, import)?;
        let is_own_child = modules.encloses(from, target.module());
        (!(is_own_child && is_mere_reexport(modules, from, import)))
            .then_some((target, import.line))
    });
    let paths = source
        .paths
        .iter()
        .filter_map(|(path, line)| modules.resolve(from, path).map(|target| (target, *line)));
    let is_arrow = |target: Target| match target {
        // The name of an enclosing module alone is no import: only the rest of the path counts.
        Target::Module(module) => !modules.encloses(module, from),
        Target::Item(module) => module != from,
    };
    let all = imports.chain(paths).filter(|(target, _)| is_arrow(*target));
    all.map(|(target, line)| (target.module(), line)).collect()
}

/// Returns whether `import` is a re-export of a name that its file does not use.
fn is_mere_reexport(modules: &Modules, from: usize, import: &Import) -> bool {
    import.public && !modules.get(from).source.words.contains(&import.name)
}

impl Target {
    fn module(self) -> usize {
        match self {
            Self::Module(module) | Self::Item(module) => module,
        }
    }
}

/// Returns the imports that lead from a layer to one above it. The root of the crate is above all layers.
fn upward(modules: &Modules, arrows: &Arrows, layered: &Layered) -> Vec<ImportFault> {
    if layered.layers.is_empty() {
        return Vec::new();
    }
    let rank = |room: &Room| match room {
        Some(name) => layered.layers.iter().position(|layer| layer.contains(&name.as_str())),
        None => Some(layered.layers.len()),
    };
    let is_upward =
        |(from, to): &(Room, Room)| rank(from).zip(rank(to)).is_some_and(|(a, b)| a < b);
    let upward = arrows.iter().filter(|(rooms, _)| is_upward(rooms));
    upward
        .map(|((from, to), origin)| {
            let [from, to] = [from, to].map(|room| name(modules, 0, room));
            ImportFault(format!(
                "{from} imports the upper layer {to}\n    {from} -> {to}: {origin}"
            ))
        })
        .collect()
}

/// Returns the modules without a layer, and the layers without a module.
fn unlisted(modules: &Modules, layered: &Layered) -> Vec<ImportFault> {
    let listed: Vec<&str> = layered.layers.iter().flat_map(|layer| layer.iter().copied()).collect();
    // Only the library has layers; the module trees of programs have none.
    if listed.is_empty() || modules.get(0).file.file_name().is_none_or(|name| name != "lib.rs") {
        return Vec::new();
    }
    let outermost = |index: &usize| modules.get(*index).path.len() == 1;
    let present: Vec<&str> = (0..modules.len())
        .filter(outermost)
        .map(|index| modules.get(index).path[0].as_str())
        .collect();
    let without_layer = present.iter().filter(|name| !listed.contains(name)).map(|name| {
        ImportFault(format!("module {name} has no layer: add it to xtask/src/imports/layers.rs"))
    });
    let without_module = listed.iter().filter(|name| !present.contains(name)).map(|name| {
        ImportFault(format!(
            "layer {name} names no module: remove it from xtask/src/imports/layers.rs"
        ))
    });
    without_layer.chain(without_module).collect()
}

fn describe(modules: &Modules, parent: usize, arrows: &Arrows, knot: &Knot<Room>) -> ImportFault {
    let circle = &knot.circle;
    let names: Vec<String> = circle.iter().map(|room| name(modules, parent, room)).collect();
    let mut text = "import cycle: ".to_owned() + &names.join(" -> ");
    if knot.len >= circle.len() {
        text += &format!(" (one of several cycles among {} modules)", knot.len);
    }
    for pair in circle.windows(2) {
        let origin = &arrows[&(pair[0].clone(), pair[1].clone())];
        let [from, to] = [&pair[0], &pair[1]].map(|room| name(modules, parent, room));
        text += &format!("\n    {from} -> {to}: {origin}");
    }
    ImportFault(text)
}

/// Returns the shown name of a room below `parent`: `a::b` for a child, the file's name for the
/// parent itself.
fn name(modules: &Modules, parent: usize, room: &Room) -> String {
    let module = modules.get(parent);
    match room {
        Some(child) => [module.path.as_slice(), std::slice::from_ref(child)].concat().join("::"),
        None => module.file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", Path::display(&self.file), self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERED: Layered = Layered {
        sources: "src",
        layers: &[&["low"], &["middle", "beside"], &["high"]],
        circles: Circles::WithParents,
    };

    const UNLAYERED: Layered = Layered { layers: &[], ..LAYERED };

    fn found(files: &[(&str, &str)], layered: &Layered) -> Vec<String> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path)?;
            Some(file.1.to_owned())
        };
        let modules = Modules::read(Path::new("src/lib.rs"), read).unwrap();
        findings(&modules, layered).into_iter().map(|finding| finding.0).collect()
    }

    #[test]
    fn an_upward_import_is_reported_with_its_line() {
        let files = [
            ("src/lib.rs", "mod low; mod middle; mod beside; mod high;"),
            ("src/low.rs", "pub struct Low;"),
            ("src/middle.rs", "use crate::low::Low;\nuse crate::{beside, high::{self, High}};"),
            ("src/beside.rs", ""),
            ("src/high.rs", "pub struct High; use crate::low;"),
        ];
        let expected = "middle imports the upper layer high\n    middle -> high: src/middle.rs:2";
        assert_eq!(found(&files, &LAYERED), [expected]);
    }

    #[test]
    fn a_module_without_a_layer_and_a_layer_without_a_module_are_reported() {
        let files = [
            ("src/lib.rs", "mod low; mod middle; mod beside; mod new;"),
            ("src/low.rs", ""),
            ("src/middle.rs", ""),
            ("src/beside.rs", ""),
            ("src/new.rs", ""),
        ];
        let found = found(&files, &LAYERED);
        assert!(found[0].starts_with("module new has no layer"), "{found:?}");
        assert!(found[1].starts_with("layer high names no module"), "{found:?}");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_cycle_names_every_arrow() {
        let files = [
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "mod deep;"),
            ("src/a/deep.rs", "\nuse super::super::b::B as Renamed;"),
            ("src/b.rs", "pub struct B; fn f() { crate::c::g() }"),
            ("src/c.rs", "pub fn g() {}\nuse crate::a as first; fn h() { first::x() }"),
        ];
        let expected = "import cycle: a -> b -> c -> a\n    a -> b: src/a/deep.rs:2\n    \
                        b -> c: src/b.rs:1\n    c -> a: src/c.rs:2";
        assert_eq!(found(&files, &UNLAYERED), [expected]);
    }

    #[test]
    fn a_parent_that_calls_its_child_and_lends_it_a_type_is_a_cycle() {
        let files = [
            ("src/lib.rs", "mod room;"),
            ("src/room.rs", "mod child;\npub struct Type;\nfn f() { child::g() }"),
            ("src/room/child.rs", "use super::Type;\npub fn g() {}"),
        ];
        let found_with = found(&files, &UNLAYERED);
        assert!(found_with[0].starts_with("import cycle: room.rs -> room::child -> room.rs"));
        let lenient = Layered { circles: Circles::BetweenChildren, ..UNLAYERED };
        assert!(found(&files, &lenient).is_empty());
    }

    #[test]
    fn a_reexport_is_no_arrow_of_the_parent() {
        let files = [
            ("src/lib.rs", "mod room; mod other; pub use room::Child;"),
            ("src/room.rs", "mod child; mod sibling; pub use child::Child; pub struct Type;"),
            ("src/room/child.rs", "use super::Type; pub struct Child;"),
            ("src/room/sibling.rs", "use super::Child;"),
            ("src/other.rs", "use crate::Child; use crate::room;"),
        ];
        assert!(found(&files, &UNLAYERED).is_empty());
    }

    #[test]
    fn a_reexport_of_an_enclosing_module_means_the_module_that_declares_it() {
        let files = [
            ("src/lib.rs", "mod room;"),
            ("src/room.rs", "mod one; mod two; pub use one::One;"),
            ("src/room/one.rs", "use super::two::Two; pub struct One;"),
            ("src/room/two.rs", "use crate::room::One; pub struct Two;"),
        ];
        let found = found(&files, &UNLAYERED);
        assert!(found[0].starts_with("import cycle: room::one -> room::two -> room::one"));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn imports_of_tests_and_declarations_of_modules_are_no_arrows() {
        let files = [
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "use crate::b; #[cfg(test)] mod properties;"),
            ("src/b.rs", "#[cfg(test)] use crate::a; #[cfg(test)] mod tests { use crate::a; }"),
        ];
        assert!(found(&files, &UNLAYERED).is_empty());
    }
}
