//! The side of the new program.
//!
//! The old program may be one that hostile bytes of a volume have taken over, so device, mount point, options and the mount's number
//! come from the monitor. The state is read as JSON into bounded types; wrong numbers in it spoil no other mount.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use nix::sys::stat;
use rustix::thread::set_name;
use sfs_core::Volume;
use sfs_device::FileDevice;
use sfs_fuse::{Agreed, SessionChannels};
use sfs_system::mountinfo::{DeviceNumber, MountTable};

use super::link::Link;
use super::messages::{PROTOCOL, ToNew, ToOld};
use super::state::{DescriptorUse, HandedDescriptors, HandedState, references_of};
use crate::device_speed::DeviceSpeed;
use crate::exit_error::ExitError;
use crate::fuse::{LostWriteback, OpenHandles};
use crate::monitor::{Monitor, TakeOver};
use crate::ready_pipe;

/// Longest wait for the old program: longer than it waits itself.
const WAIT_MAX: Duration = Duration::from_secs(1200);

/// Largest speed of a device in bytes a second, and longest time of a request, that are believed.
const SPEED_MAX: u64 = 1 << 40;
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// Mount that another program hands over.
pub(crate) struct Taken {
    link: Link,
    /// Device number of the mount.
    pub(crate) number: DeviceNumber,
    /// Protocol that was agreed on with the kernel.
    pub(crate) agreed: Agreed,
    state: HandedState,
    pub(crate) descriptors: HandedDescriptors,
    /// `true` once this program has the mount.
    owns: Arc<AtomicBool>,
}

/// Connection before the state is handed over.
pub(crate) struct Beginning {
    link: Link,
    number: DeviceNumber,
}

impl Beginning {
    /// Says hello to the program that has the mount. Its descriptor is the standard input of this process.
    pub(crate) fn hello(take_over: &TakeOver) -> Result<Self, ExitError> {
        let _ = set_name(c"sfs-mount");
        // The monitor, which has started this process, blocks signals.
        let _ = SigSet::all().thread_unblock();
        let link = io::stdin().as_fd().try_clone_to_owned().map_err(ExitError::system)?;
        let link = Link::new(link);
        ready_pipe::leave_terminal();
        let hello = ToOld::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").into() };
        let number = take_over.number;
        let obstacle = match take_over.after_death {
            // A look at a file on the mount would wait for this program.
            true => None,
            false => depends_on(number, &take_over.program).map_err(ExitError::system)?,
        };
        let beginning = Self { link, number };
        if let Some(path) = obstacle {
            let failure = ExitError::mount(format_args!(
                "{}: sfs needs this file, and it is on the mount itself, which does not answer during a handover; unmount it \
                 and mount it again",
                path.display()
            ));
            beginning.fail(&failure);
            return Err(failure);
        }
        beginning.link.send(&hello, &[], end()).map_err(ExitError::system)?;
        Ok(beginning)
    }

    /// Tells the old program why this one gives up.
    pub(crate) fn fail(&self, failure: &ExitError) {
        fail(&self.link, failure);
    }

    /// Waits for the state.
    pub(crate) fn receive(self) -> Result<Taken, ExitError> {
        match self.receive_state() {
            Ok((agreed, state, descriptors)) => {
                let owns = Arc::default();
                Ok(Taken { link: self.link, number: self.number, agreed, state, descriptors, owns })
            }
            Err(failure) => {
                self.fail(&failure);
                Err(failure)
            }
        }
    }

    fn receive_state(&self) -> Result<(Agreed, HandedState, HandedDescriptors), ExitError> {
        let received = self.link.receive(end()).map_err(ExitError::system)?;
        let (ToNew::State(state), descriptors) = received else { return Err(unexpected()) };
        let descriptors =
            HandedDescriptors::new(&state.descriptors, descriptors).map_err(ExitError::system)?;
        let agreed = state.agreed.known().ok_or_else(|| {
            ExitError::mount("the older program uses features of FUSE that this one does not know")
        })?;
        Ok((agreed, *state, descriptors))
    }
}

impl Taken {
    /// Returns the device at `path`.
    pub(crate) fn device(&mut self, path: &Path) -> Result<FileDevice, ExitError> {
        let device = self.descriptors.take(DescriptorUse::Device).ok_or_else(unexpected)?;
        let writable = self.descriptors.take(DescriptorUse::DeviceForWriting);
        let adopted = FileDevice::adopt(path, device.into(), writable.map(Into::into));
        adopted.map_err(ExitError::mount)
    }

    /// Returns whether the mount is read-only because the device is, against its options.
    pub(crate) fn is_write_protected(&self) -> bool {
        self.state.is_write_protected
    }

    /// Returns whether nothing was written since the volume was mounted read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.state.is_read_only
    }

    /// Returns whether the kernel reads asynchronously.
    pub(crate) fn reads_asynchronously(&self) -> bool {
        self.state.reads_asynchronously
    }

    /// Returns the reason for the transport.
    pub(crate) fn reason(&self) -> String {
        self.state.reason.clone()
    }

    /// Returns the speed of reading that was measured at the mount.
    pub(crate) fn read_speed(&self) -> Option<DeviceSpeed> {
        let (bytes_per_second, nanos) = self.state.read_speed?;
        let request = Duration::from_nanos(nanos);
        let is_possible = (1..=SPEED_MAX).contains(&bytes_per_second) && request <= REQUEST_MAX;
        is_possible.then_some(DeviceSpeed { bytes_per_second, request })
    }

    /// Takes the channels of the kernel's requests.
    pub(crate) fn take_channels(&mut self) -> SessionChannels {
        self.descriptors.take_channels()
    }

    /// Takes the connection to the monitor of a program that has died.
    pub(crate) fn take_monitor(&mut self) -> Option<Monitor> {
        let mount = self.descriptors.take(DescriptorUse::MonitorOfMount)?;
        let processes = self.descriptors.take(DescriptorUse::MonitorOfProcesses)?;
        Some(Monitor::adopt(mount, processes))
    }

    /// Takes the system's table of mounts, if this program does not find it.
    pub(crate) fn take_mounts(&mut self) -> Option<MountTable> {
        self.descriptors.take(DescriptorUse::Mounts).map(MountTable::adopt)
    }

    /// Takes the memory with the records of a program that has died.
    pub(crate) fn take_records(&mut self) -> Option<File> {
        self.descriptors.take(DescriptorUse::Records).map(File::from)
    }

    /// Gives the volume and the shell what they knew in the old program.
    pub(crate) fn adopt(&mut self, volume: &Volume, handles: &OpenHandles, losses: &LostWriteback) {
        volume.adopt_references(&references_of(&std::mem::take(&mut self.state.references)));
        handles.adopt(&std::mem::take(&mut self.state.handles));
        losses.adopt(std::mem::take(&mut self.state.losses));
    }

    /// Says that the volume is open, and waits until this program may write.
    pub(crate) fn wait_for_commit(&self) -> Result<(), ExitError> {
        self.link.send(&ToOld::Ready, &[], end()).map_err(ExitError::system)?;
        match self.link.receive(end()).map_err(ExitError::system)? {
            (ToNew::Commit, _) => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Says that all threads wait to serve, and waits until this program has the mount: until the old one says so, or has ended.
    pub(crate) fn wait_for_go(&self) -> Result<(), ExitError> {
        // The old program may have been killed.
        let _ = self.link.send(&ToOld::Started, &[], end());
        wait_for_go(&self.link)?;
        self.owns.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Returns the mark that is `true` once this program has the mount. Until then it must remove nothing.
    pub(crate) fn owns(&self) -> Arc<AtomicBool> {
        self.owns.clone()
    }

    /// Returns whether this program has the mount.
    pub(crate) fn has_mount(&self) -> bool {
        self.owns.load(Ordering::SeqCst)
    }

    /// Tells the old program why this one gives up.
    pub(crate) fn fail(&self, failure: &ExitError) {
        fail(&self.link, failure);
    }
}

/// Waits until the old program says that it does not go on, or has ended.
fn wait_for_go(link: &Link) -> Result<(), ExitError> {
    loop {
        match link.receive(end()) {
            Ok((ToNew::Go, _)) => return Ok(()),
            Ok(_) => return Err(unexpected()),
            Err(error) => match error.kind() {
                io::ErrorKind::TimedOut => {}
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => return Ok(()),
                _ => return Err(ExitError::system(error)),
            },
        }
    }
}

fn fail(link: &Link, failure: &ExitError) {
    let (status, line) = (failure.status, failure.to_string());
    let _ = link.send(&ToOld::Failed { status, line }, &[], end());
}

fn end() -> Instant {
    Instant::now() + WAIT_MAX
}

fn unexpected() -> ExitError {
    ExitError::system("the older program does not speak the protocol of a handover")
}

/// Returns a file on the filesystem `number` that this program needs while that filesystem does not answer: itself, or a library.
fn depends_on(number: DeviceNumber, program: &Path) -> io::Result<Option<PathBuf>> {
    let is_there = |dev: u64| {
        (u64::from(number.major), u64::from(number.minor)) == (stat::major(dev), stat::minor(dev))
    };
    if fs::metadata(program).is_ok_and(|metadata| is_there(metadata.dev())) {
        return Ok(Some(program.to_owned()));
    }
    let maps = fs::read("/proc/self/maps")?;
    let maps = String::from_utf8_lossy(&maps).into_owned();
    let device = format!("{:02x}:{:02x}", number.major, number.minor);
    let mapped = maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let found = fields.nth(3)?;
        (found == device).then(|| fields.nth(1).unwrap_or("a library").into())
    });
    Ok(mapped)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_program_goes_on_when_it_may_and_when_the_old_one_has_ended() {
        let pair = || {
            let (old, new) = UnixStream::pair().expect("sockets");
            (Link::new(old.into()), Link::new(new.into()))
        };
        let (old, new) = pair();
        old.send(&ToNew::Go, &[], end()).expect("sent");
        wait_for_go(&new).expect("it may go on");
        old.send(&ToNew::Commit, &[], end()).expect("sent");
        wait_for_go(&new).expect_err("not a second time");
        drop(old);
        wait_for_go(&new).expect("nobody else goes on");
    }
}
