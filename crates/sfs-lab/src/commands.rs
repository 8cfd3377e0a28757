//! The commands that work on one model, trace, policy or mount, a file each.

pub(crate) mod age;
pub(crate) mod model;
pub(crate) mod progress;
pub(crate) mod replay;
pub(crate) mod simulate;
pub(crate) mod ssd;
pub(crate) mod traces;
