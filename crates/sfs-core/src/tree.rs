//! The metadata map: a copy-on-write B+tree of 4 KiB nodes, in memory.
//!
//! A lookup or change that needs a node which is not in memory returns [`NodeNotCached`] and has
//! changed nothing; the caller reads the node, inserts it with [`Tree::insert`] and tries again.
//! [`Tree::write_out`] moves all dirty nodes to new addresses. Nodes from a device, forged or not,
//! cannot make the tree panic or loop. The tree does not know the meaning of its items.

mod descent;
mod edit;
mod forecast;
mod inner;
mod keys;
mod leaf;
mod map;
mod neighbours;
mod node;
mod node_cache;
mod not_cached;
mod scan;
mod search;
mod verified;
mod walk;
mod write_out;

pub use forecast::{PlannedChange, PlannedValue};
pub use keys::Keys;
pub use map::Tree;
pub use neighbours::Neighbourhood;
pub use not_cached::NodeNotCached;
pub use scan::ScanPath;
pub use search::{Item, Range};
pub use verified::VerifiedNode;
pub use write_out::WriteOut;
