//! Rules of a sound volume, and the check of one volume against them.
//!
//! [`volume`] reads a volume and runs the checks of its parts. Each part has its own module. Violations are
//! findings in a [`report`].

pub(crate) mod data_blocks;
pub(crate) mod file;
pub(crate) mod link_sums;
pub(crate) mod links;
pub(crate) mod name_collector;
pub(crate) mod namespace;
pub(crate) mod paths;
pub(crate) mod quick;
pub(crate) mod reference;
pub(crate) mod references;
pub(crate) mod report;
pub(crate) mod tree;
pub(crate) mod usage_recount;
pub(crate) mod volume;
pub(crate) mod xattrs;
