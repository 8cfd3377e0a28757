//! The command lines of the programs: one type for each, which clap parses.
//!
//! The types are apart from the programs, so that manual pages and completions are made from them; only programs of
//! developers do that.

mod ctl;
mod mount;
mod umount;
#[cfg(feature = "view")]
mod view;

pub use ctl::{CtlArguments, CtlCommand, ImageCommand};
pub use mount::MountArguments;
pub use umount::UmountArguments;
#[cfg(feature = "view")]
pub use view::{ReportArguments, TopArguments};
