//! The program `sfs-fsck`: arguments, output for people and as JSON, exit codes.

pub(crate) mod arguments;
pub(crate) mod cache;
pub(crate) mod dump;
pub(crate) mod dump_item;
pub(crate) mod dump_text;
pub(crate) mod interrupt;
pub(crate) mod json;
pub(crate) mod object_store;
pub(crate) mod outcome;
pub(crate) mod progress_bar;
pub(crate) mod run;
pub(crate) mod store_check;
pub(crate) mod text;
