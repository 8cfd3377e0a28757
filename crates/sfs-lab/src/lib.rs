//! The policy laboratory: the grouping and victim policies of SFS, run over generators and block
//! traces without FUSE and without a device, and filesystems run on models of flash.
//!
//! [`simulation`] runs one policy pair under one [`workload`]. [`raw_flash`] runs a volume on flash without a translation layer.
//! [`block_trace`] reads recorded requests of devices, [`request_load`] those of a mounted volume. [`request_replay`] repeats these in a
//! directory, and [`advice`] compares the settings of a volume under them. [`flash`] replays them on the models of `sfs-ssd`, [`object_load`] compares the interfaces of a device, and
//! [`host`] runs real filesystems on
//! a model that [`exported`] serves as a disk. [`report`] writes tables and figures. The experiments
//! and the commands of the program `sfs-lab` use this library; the library does not import them.
#![forbid(unsafe_code)]

pub mod advice;
pub mod block_trace;
pub mod closed_form;
pub mod exported;
pub mod flash;
pub mod host;
pub mod in_memory;
pub mod object_load;
mod ram_volume;
pub mod random;
pub mod raw_flash;
pub mod report;
pub mod request_load;
pub mod request_replay;
pub mod simulation;
mod trace_text;
pub mod workload;
