//! Flash translation layers, which turn page writes in place into operations that flash allows.
//!
//! [`Layer`] names a layer and its parameters, and builds it. The layers implement [`Ftl`]:
//! [`PageMapped`] maps every page; [`Fast`], [`Bast`] and [`Superblock`] map blocks and have log blocks. After any
//! sequence of calls, [`Ftl::slot`] returns the slot of the last version of each page.

mod bast;
mod build;
mod fast;
mod free;
mod hybrid;
mod interface;
mod layer;
mod names;
mod page_mapped;
mod superblock;
mod victims;

pub use bast::Bast;
pub use fast::Fast;
pub use interface::{Ftl, PageWrite};
pub use layer::{Collection, Isolation, Layer, WearLevelling};
pub use names::LayerError;
pub use page_mapped::PageMapped;
pub use superblock::Superblock;
