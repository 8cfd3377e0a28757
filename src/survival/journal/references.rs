//! References and handles: recorded beside the changes, while one may be under way.

use super::{Journal, LEFT_BY_REFERENCES};
use crate::survival::record;

impl Journal {
    /// Appends a record that no change belongs to.
    fn append_aside(&self, (kind, bytes): (u32, impl AsRef<[u8]>)) {
        let bytes = bytes.as_ref();
        let needed = bytes.len() + LEFT_BY_REFERENCES;
        let mut state = self.state.lock();
        if !state.areas.has_room(needed) {
            drop(state);
            // No area is changed under a change.
            let changes = self.changes.lock();
            state = self.make_room(needed);
            self.append(&mut state, kind, [bytes]);
            drop(state);
            drop(changes);
            return;
        }
        self.append(&mut state, kind, [bytes]);
    }

    /// Records a reference that the kernel is about to get.
    pub(crate) fn refer(&self, node: u64) {
        self.append_aside(record::reference(node, 1));
    }

    /// Records references that the kernel is about to get.
    pub(crate) fn refer_all(&self, nodes: impl IntoIterator<Item = u64>) {
        let (kind, bytes) = record::references(nodes.into_iter().map(|node| (node, 1)));
        if !bytes.is_empty() {
            self.append_aside((kind, bytes));
        }
    }

    /// Records that the kernel gives `count` references to `node` back, before they are forgotten.
    pub(crate) fn forget(&self, node: u64, count: u64) {
        self.append_aside(record::reference(node, negative(count)));
    }

    /// Records references that the kernel gives back, before they are forgotten.
    pub(crate) fn forget_all(&self, counts: impl IntoIterator<Item = (u64, u64)>) {
        let counts = counts.into_iter();
        self.append_aside(record::references(counts.map(|(node, count)| (node, negative(count)))));
    }

    /// Records a handle that the kernel is about to get.
    pub(crate) fn opened(&self, ino: u64, number: u64, flags: u32) {
        self.append_aside(record::opened(ino, number, flags));
    }

    /// Records a handle that is about to be closed.
    pub(crate) fn released(&self, ino: u64, number: u64) {
        self.append_aside(record::released(ino, number));
    }
}

/// Returns the change of a number of references by `count` that are given back.
fn negative(count: u64) -> i64 {
    i64::try_from(count).map_or(i64::MIN + 1, |count: i64| -count)
}
