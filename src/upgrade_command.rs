//! `sfs-ctl upgrade`: the installed program goes on with a mount, without an unmount.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use sfs_system::mountinfo::MountRecord;

use crate::control::{self, ControlReply, ControlRequest};
use crate::exit_error::ExitError;
use crate::freeze_command::find;

/// Longest time for starting the program, and for what it does once it may write, beside the pause.
const MORE_SECS: u64 = 600;

/// Has the installed `sfs-mount` take over the mount at `dir`. Requests are not answered for some time: for at most about
/// `pause_max_secs` if the handover fails. Returns a line for the user, or JSON.
///
/// # Errors
///
/// [`ExitError`] with a line that names the mount and the obstacle; the program before serves on.
pub fn upgrade(dir: &Path, pause_max_secs: u64, json: bool) -> Result<String, ExitError> {
    let mount = find(dir)?;
    flush(&mount);
    let wait = Duration::from_secs(pause_max_secs + MORE_SECS);
    let request = ControlRequest::Upgrade { pause_max_secs };
    let ControlReply::Upgraded(report) = control::ask_within(&mount, &request, wait)? else {
        return Err(control::unknown_reply(&mount));
    };
    let (from, to, pause_ms) = (&report.from, &report.to, report.pause_ms);
    Ok(match json {
        true => format!(
            r#"{{"version":1,"upgraded":true,"from":{},"to":{},"pause_ms":{pause_ms}}}"#,
            serde_json::Value::from(from.as_str()),
            serde_json::Value::from(to.as_str()),
        ),
        false => format!(
            "{}: served by sfs {to} now, before by {from}; requests waited for {pause_ms} ms",
            mount.dir.display()
        ),
    })
}

/// Has the kernel write its cache, as far as that succeeds: what is written before is not written in the pause.
fn flush(mount: &MountRecord) {
    let _ = File::open(&mount.dir).map(rustix::fs::syncfs);
}
