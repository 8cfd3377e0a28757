//! `sfs-ctl report`: one HTML page about a volume, without any other resource.
//!
//! `page` puts the sections together, `charts` and `map` draw them. Every text goes
//! through [`escape`](mod@crate::escape): labels and paths may be forged.

mod charts;
mod map;
mod page;
mod sections;
#[cfg(test)]
mod tests;

pub use page::report_page;
