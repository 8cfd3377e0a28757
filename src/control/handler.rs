//! The daemon's answers to requests at its control socket.
//!
//! A client cannot write to the volume once the last checkpoint has begun:
//! [`ControlHandler::is_over`] is locked while a client's request writes. The kernel's mount is
//! never changed here, but by `sfs-mount -o remount`.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sfs_core::request::LifetimeTotals;
use sfs_core::{Error, Volume};
use sfs_system::mountinfo::{self, DeviceNumber};

use super::messages::{ControlReply, ControlRequest};
use super::server::HandleRequest;
use crate::background::Waker;
use crate::bdi::BackingDevice;
use crate::exit_error::ExitError;
use crate::mount_options::MountOptions;
use crate::resize_report::{self, ResizeReport};
use crate::stat_report::VolumeReport;
use crate::transport::ActiveTransport;

/// State of a mount that requests need.
pub(crate) struct ControlHandler {
    pub(crate) volume: Arc<Volume>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) bdi: Arc<BackingDevice>,
    /// Totals of earlier mounts.
    pub(crate) before: LifetimeTotals,
    pub(crate) options: MountOptions,
    /// `true` if the mount is read-only because the device is, against its options.
    pub(crate) is_write_protected: bool,
    /// Transport, and the reason for it.
    pub(crate) transport: (ActiveTransport, String),
    /// Path of the device.
    pub(crate) device: String,
    pub(crate) number: DeviceNumber,
    /// `true` once the last checkpoint has begun. Locked while the volume is written for a client.
    pub(crate) is_over: Arc<Mutex<bool>>,
}

impl HandleRequest for ControlHandler {
    fn handle(&self, request: &ControlRequest) -> ControlReply {
        let outcome = match request {
            ControlRequest::Status => {
                let report = VolumeReport::of_mounted(
                    &self.volume,
                    &self.before,
                    &self.device,
                    &self.transport,
                );
                let cache = Some(self.bdi.dirty_bound().into());
                return ControlReply::Status(Box::new(VolumeReport { cache, ..report }));
            }
            ControlRequest::Watch => return ControlReply::Watching,
            ControlRequest::Allow(list) => self.allow(list).map(|()| ControlReply::Allowed),
            ControlRequest::Rest => self.rest().map(|()| ControlReply::Resting),
            ControlRequest::Resize { bytes } => self.resize(*bytes).map(ControlReply::Resized),
        };
        outcome.unwrap_or_else(ControlReply::from)
    }
}

impl ControlHandler {
    /// Checks that the mount can be changed to the options of `list`.
    fn allow(&self, list: &str) -> Result<(), ExitError> {
        let device = &self.device;
        let options = self.options.changed_by(list)?;
        if options.volume.read_only {
            return Ok(());
        }
        if self.is_write_protected {
            return Err(ExitError::mount(format_args!("{device}: is write-protected")));
        }
        if self.options.volume.read_only {
            return Err(ExitError::mount(format_args!(
                "{device}: was mounted read-only; unmount it and mount it with -o rw"
            )));
        }
        self.write_all()
    }

    /// Makes everything durable and lets the background thread rest. The kernel's mount must be read-only by now.
    fn rest(&self) -> Result<(), ExitError> {
        let device = &self.device;
        let mount = mountinfo::of_number(self.number)
            .map_err(|error| ExitError::system(format_args!("/proc/self/mountinfo: {error}")))?;
        if !mount.is_some_and(|mount| mount.is_read_only()) {
            return Err(ExitError::mount(format_args!("{device}: is mounted for writing")));
        }
        if self.options.volume.read_only {
            return Ok(());
        }
        let step = self.waker.rest();
        let outcome = self.write_all();
        drop(step);
        if outcome.is_err() {
            self.waker.note();
        }
        outcome?;
        if self.waker.is_resting() {
            return Ok(());
        }
        Err(ExitError::mount(format_args!("{device}: was changed meanwhile; try again")))
    }

    /// Grows the volume.
    fn resize(&self, bytes: Option<u64>) -> Result<ResizeReport, ExitError> {
        let device = &self.device;
        let _is_over = self.begin_writing()?;
        let report = resize_report::grow(&self.volume, bytes)
            .map_err(|error| ExitError::mount(format_args!("{device}: {error}")))?;
        tracing::info!("{device}: {report}");
        Ok(report)
    }

    /// Keeps the last checkpoint from being begun.
    fn begin_writing(&self) -> Result<MutexGuard<'_, bool>, ExitError> {
        let device = &self.device;
        let is_over = self.is_over.lock();
        if *is_over {
            return Err(ExitError::mount(format_args!("{device}: is being unmounted")));
        }
        Ok(is_over)
    }

    fn write_all(&self) -> Result<(), ExitError> {
        let device = &self.device;
        let _is_over = self.begin_writing()?;
        self.volume.sync_all().map_err(|error| match error {
            Error::Stopped => ExitError::mount(format_args!(
                "{device}: is read-only after a failed write or a shutdown; see the log, and run \
                 sfs-fsck"
            )),
            error => ExitError::mount(format_args!("{device}: {error}")),
        })
    }
}
