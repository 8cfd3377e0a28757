//! Repair of a damaged volume.
//!
//! [`run`] repeats a [`pass`] until nothing waits for space. A pass collects edits of the tree, from
//! [`salvage`] and [`fix`], until a check of the edited tree finds nothing. Only then does [`rewrite`] write.

pub(crate) mod checkpoint_slots;
pub(crate) mod editor;
pub(crate) mod fix;
pub(crate) mod fix_access_lists;
pub(crate) mod fix_content;
pub(crate) mod fix_inodes;
pub(crate) mod fix_names;
pub(crate) mod forget_errors;
pub(crate) mod loss;
pub(crate) mod lost_found;
pub(crate) mod old_deltas;
pub(crate) mod options;
pub(crate) mod pass;
pub(crate) mod plan;
pub(crate) mod rewrite;
pub(crate) mod run;
pub(crate) mod salvage;
pub(crate) mod superblocks;
