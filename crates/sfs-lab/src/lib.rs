//! The policy laboratory: the grouping and victim policies of SFS without FUSE and without a
//! device, over generators and block traces.
//!
//! `docs/lab.md` shows what it says.
#![forbid(unsafe_code)]

pub mod ageing;
pub mod block_statistics;
pub mod block_trace;
pub mod closed_form;
pub mod comparison;
pub mod cost_model;
pub mod document;
pub mod exported;
pub mod flash_replay;
pub mod host;
pub mod oracle;
pub mod outcome;
pub mod overwriting;
pub mod random;
pub mod run;
pub mod simulation;
pub mod svg;
pub mod workload;
