//! Limiting the daemon once its mount is made, before it has threads.
//!
//! The sockets and the directory of the kernel's settings are opened before; docs/decisions/0040 lists what is needed later.

use std::path::Path;

use rustix::thread::CapabilitySet;
use sfs_system::mountinfo::DeviceNumber;

use crate::bdi::BackingDevice;
use crate::control::ControlSocket;
use crate::exit_error::ExitError;
use crate::handover::state::DescriptorUse;
use crate::handover::taking::Taken;
use crate::metrics::MetricsSockets;
use crate::mount_options::MountOptions;
use crate::sandbox::{self, FileUse, Limits, NeededFiles};
use crate::stat_report::device_wear_files;
use crate::transport::Serving;
use crate::unsafe_calls;

/// Number of attempts to find a single thread, and the pause between two.
const ENDING_ATTEMPTS: u32 = 100;
const ENDING_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

/// Sockets that listen. A mount works without one; programs that need it report that it is missing.
pub(super) struct Sockets {
    pub(super) control: Option<ControlSocket>,
    pub(super) metrics: MetricsSockets,
}

impl Sockets {
    /// Listens for requests about the filesystem with device number `number`, mounted at `dir`.
    pub(super) fn listen(dir: &Path, number: DeviceNumber, options: &MountOptions) -> Self {
        let control = ControlSocket::listen(number)
            .inspect_err(|error| tracing::warn!("{}: no control socket: {error}", dir.display()))
            .ok();
        Self { control, metrics: MetricsSockets::listen(number, options.metrics) }
    }

    /// Goes on with the sockets of another program.
    pub(super) fn adopt(dir: &Path, options: &MountOptions, taken: &mut Taken) -> Self {
        let (owns, descriptors) = (taken.owns(), &mut taken.descriptors);
        let watchers = descriptors.take_all(DescriptorUse::Watcher);
        let control = descriptors.take(DescriptorUse::Control).and_then(|listener| {
            ControlSocket::adopt(listener, watchers, owns.clone())
                .inspect_err(|error| {
                    tracing::warn!("{}: no control socket: {error}", dir.display());
                })
                .ok()
        });
        Self { control, metrics: MetricsSockets::adopt(descriptors, options.metrics, owns) }
    }
}

/// Returns the number of threads, after those that have ended had time to go.
fn thread_count() -> std::io::Result<usize> {
    for _ in 0..ENDING_ATTEMPTS {
        if unsafe_calls::thread_count()? == 1 {
            break;
        }
        std::thread::sleep(ENDING_PAUSE);
    }
    unsafe_calls::thread_count()
}

/// Limits this process to the files of a mount of `device`. Returns `None` with `nosandbox`.
///
/// # Errors
///
/// There are other threads already, which would not be limited.
pub(super) fn limit(
    device: &Path,
    number: DeviceNumber,
    options: &MountOptions,
    bdi: &BackingDevice,
    sockets: &Sockets,
    serving: &Serving,
) -> Result<Option<Limits>, ExitError> {
    let settings = bdi.open(number);
    if !options.sandbox {
        return Ok(None);
    }
    let threads = thread_count()
        .map_err(|error| ExitError::system(format_args!("/proc/self/task: {error}")))?;
    if threads != 1 {
        return Err(ExitError::system(format_args!(
            "a defect in sfs: {threads} threads before the sandbox; mount with -o nosandbox"
        )));
    }
    let mut files = NeededFiles::default();
    device_wear_files(device).iter().for_each(|file| files.add(file, FileUse::Read));
    serving.opened_later().into_iter().for_each(|file| files.add(file, FileUse::Write));
    settings.iter().for_each(|dir| files.add(dir, FileUse::Write));
    let control = sockets.control.iter();
    control.for_each(|control| files.add(control.directory(), FileUse::Remove));
    let mut kept = CapabilitySet::empty();
    if options.volume.read_only && !sfs_object::is_store_url(device.as_os_str()) {
        // A remount for writing opens the device again. It may belong to another user, as may the directories above it.
        files.add(device, FileUse::Write);
        kept |= CapabilitySet::DAC_OVERRIDE;
    }
    Ok(Some(sandbox::enter(&files, kept)))
}
