//! Paths of the inodes that a report names.

use std::collections::{BTreeMap, HashSet};

use sfs_core::format::ROOT_INO;

use crate::check::links::NameRef;
use crate::check::name_collector::NameCollector;
use crate::check::namespace::NamespaceCheck;
use crate::error::FsckError;
use crate::progress::ProgressListener;
use crate::read::dirent::Dirent;
use crate::read::overlay_tree::OverlayTree;

/// Maximum number of names in a path of a report.
const PATH_DEPTH_MAX: usize = 256;

/// Returns a path to each of `inos` that has one. The check of names, `namespace`, is finished.
pub(crate) fn paths(
    namespace: &NamespaceCheck,
    tree: &OverlayTree<'_>,
    inos: &HashSet<u64>,
    listener: ProgressListener<'_>,
) -> Result<BTreeMap<u64, Vec<u8>>, FsckError> {
    let mut unknown = inos.clone();
    unknown.retain(|ino| !namespace.has_names_of(*ino));
    let mut names = match unknown.is_empty() {
        true => Vec::new(),
        false => NameCollector::of_inos(tree, &unknown, listener)?.names,
    };
    names.sort_unstable();
    let path = |ino: &u64| Some((*ino, path(namespace, tree, *ino, &names)?));
    Ok(inos.iter().filter_map(path).collect())
}

/// Returns a path to `ino`, if there is one of at most [`PATH_DEPTH_MAX`] names. Names that `namespace` does not
/// hold are in `others`, sorted.
fn path(
    namespace: &NamespaceCheck,
    tree: &OverlayTree<'_>,
    ino: u64,
    others: &[NameRef],
) -> Option<Vec<u8>> {
    let (mut names, mut at) = (Vec::new(), ino);
    while at != ROOT_INO {
        let first = others.partition_point(|name| name.target < at);
        let other = others.get(first).filter(|name| name.target == at);
        let name = namespace.names_of(at).first().or(other)?;
        names.push(Dirent::decode(&tree.get(&name.key())?)?.name.to_vec());
        at = name.parent;
        if names.len() > PATH_DEPTH_MAX {
            return None;
        }
    }
    names.reverse();
    let names: Vec<Vec<u8>> = names.into_iter().map(|name| [b"/", &name[..]].concat()).collect();
    Some(if names.is_empty() { b"/".to_vec() } else { names.concat() })
}
