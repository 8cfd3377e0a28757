//! SFS as a mounted filesystem: mounting a volume, serving it through FUSE, and unmounting it.
//!
//! The library holds everything between the command line, the kernel and [`sfs_core::Volume`]. The programs
//! `sfs-mount`, `sfs-umount` and `sfs-ctl` parse their arguments and call one function each.
//!
//! Layers, from the top; a module uses only layers below its own, or modules to its right:
//!
//! 0. [`command_line`]: the arguments of the programs;
//! 1. one module for each task of a program: [`image`], [`remount`], [`resize`], [`unmount`], [`stat`], [`segments_command`], [`freeze_command`],
//!    [`health`], [`hot_command`], [`file_command`], [`asked_work_command`], [`cache_command`], [`defrag_command`], [`metrics_command`], [`scrub_command`], [`trace_command`], [`upgrade_command`], [`mount_session`];
//! 2. `control`: the socket between those programs and the daemon of a mount; [`metrics`], which is served beside it;
//!    `waiting_requests`;
//! 3. `handover`: giving a mount to another program; `health_log`: early warning; [`stat_report`]: the numbers of a volume; `recent_cleanings`; `resize_report`: changes of its size;
//!    `inspect`: its files, its scrub, and work that is asked for;
//! 4. [`transport`]: carries requests between the kernel and the shell;
//! 5. `fuse`: the shell, which turns requests into calls of the volume; [`freeze`]: the gate for requests that change it;
//!    `request_recorder`; `monitor`: the process with the privileges that the daemon gives up; `object_volume`: a volume in an object store;
//! 6. `log_thread`, `background`, `bdi`, `timed_device`, `memory_budget`, `volume_cache`, `mount`, [`mount_options`], `survival`: the thread for the log, the background thread, the kernel's settings
//!    for a mount, the time that writing takes, budgets that fit the memory, the SSD cache, the kernel's tree of mounts, `-o`, records that survive the daemon;
//! 7. [`program`], `ready_pipe`, `volume_path`, `socket_deadline`, [`private_file`], `device_speed`, `sandbox`: the limits of the daemon, `unsafe_calls`, `panic_hook`, `logging`, `file_clock`, `kernel_release`, [`exit_error`].
#![deny(unsafe_code)]

pub mod asked_work_command;
mod background;
mod bdi;
pub mod cache_command;
pub mod command_line;
mod control;
pub mod defrag_command;
mod device_speed;
pub mod exit_error;
mod file_clock;
pub mod file_command;
pub mod freeze;
pub mod freeze_command;
mod fuse;
mod handover;
pub mod health;
mod health_log;
pub mod hot_command;
pub mod image;
mod inspect;
mod kernel_release;
mod log_thread;
mod logging;
mod memory_budget;
pub mod metrics;
pub mod metrics_command;
mod monitor;
mod mount;
pub mod mount_options;
pub mod mount_session;
mod mounted_volume;
mod object_volume;
mod panic_hook;
pub mod private_file;
pub mod program;
mod ready_pipe;
mod recent_cleanings;
pub mod remount;
mod request_recorder;
pub mod resize;
mod resize_report;
mod sandbox;
pub mod scrub_command;
pub mod segments_command;
mod socket_deadline;
pub mod stat;
pub mod stat_report;
mod survival;
mod timed_device;
pub mod trace_command;
pub mod transport;
pub mod unmount;
#[expect(unsafe_code, reason = "the one module that calls the system")]
mod unsafe_calls;
pub mod upgrade_command;
mod volume_cache;
mod volume_path;
mod waiting_requests;

pub use exit_error::{ExitError, ExitStatus};
