//! The threads that serve the metrics of a mount.
//!
//! One thread for each listener accepts connections, and each connection is served by a short-lived thread, within
//! limits on their number and time. A mount works without metrics: what cannot be served is logged.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sfs_system::mountinfo::DeviceNumber;

use super::exposition::exposition;
use super::http::{Connection, Hosts, Patience, answer};
use super::metric::Naming;
use crate::control::{BoundSocket, adopt_for_metrics, is_allowed, listen_for_metrics};
use crate::handover::state::{DescriptorUse, HandedDescriptors};
use crate::stat_report::VolumeReport;

/// Time for a client, which is on this machine.
const PATIENCE: Patience =
    Patience { request: Duration::from_secs(2), response: Duration::from_secs(5) };

/// Largest number of connections of a listener that are served at the same time.
const CLIENTS_MAX: usize = 4;

/// Age up to which every user of the machine gets the same text: a report takes locks of the volume.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Pause after accept(2) failed, for want of a descriptor for example.
const PAUSE: Duration = Duration::from_millis(200);

/// Function that reports on the mount.
type Report = dyn Fn() -> VolumeReport + Send + Sync;

/// Sockets for the metrics of a mount that listen, and that no thread serves yet.
pub(crate) struct MetricsSockets {
    beside_control: io::Result<(UnixListener, BoundSocket)>,
    address: Option<(SocketAddr, io::Result<TcpListener>)>,
}

impl MetricsSockets {
    /// Listens for the filesystem with device number `number` on a Unix socket, and with `address` on that.
    pub(crate) fn listen(number: DeviceNumber, address: Option<SocketAddr>) -> Self {
        let beside_control = listen_for_metrics(number);
        let address = address.map(|address| (address, TcpListener::bind(address)));
        Self { beside_control, address }
    }

    /// Goes on with the sockets of another program: that for the owner, and that at `address`. The file is removed once `owns` is
    /// `true`.
    pub(crate) fn adopt(
        descriptors: &mut HandedDescriptors,
        address: Option<SocketAddr>,
        owns: Arc<AtomicBool>,
    ) -> Self {
        let beside_control = descriptors.take(DescriptorUse::Metrics);
        let beside_control = beside_control.map(|listener| adopt_for_metrics(listener, owns));
        let beside_control = beside_control.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
        let at_address = descriptors.take(DescriptorUse::MetricsAddress).map(TcpListener::from);
        let address = address
            .map(|address| (address, at_address.ok_or_else(|| io::ErrorKind::NotFound.into())));
        Self { beside_control, address }
    }

    /// Returns duplicates of the descriptors, for another program.
    pub(crate) fn duplicates(&self) -> HandedDescriptors {
        let mut descriptors = HandedDescriptors::default();
        if let Ok(Ok(listener)) = self.beside_control.as_ref().map(|(socket, _)| socket.try_clone())
        {
            descriptors.add(DescriptorUse::Metrics, listener);
        }
        if let Some((_, Ok(listener))) = &self.address
            && let Ok(listener) = listener.try_clone()
        {
            descriptors.add(DescriptorUse::MetricsAddress, listener);
        }
        descriptors
    }
}

/// Sockets for the metrics of a mount. Dropping it removes the Unix socket's file.
pub(crate) struct MetricsServer {
    _socket: Option<BoundSocket>,
}

impl MetricsServer {
    /// Serves the metrics of a mount on `sockets`. A problem is logged with `name`, the path of the device.
    pub(crate) fn start(name: &str, sockets: MetricsSockets, report: Arc<Report>) -> Self {
        let MetricsSockets { beside_control, address } = sockets;
        let _socket = beside_control
            .and_then(|socket| serve_owner(socket, report.clone()))
            .inspect_err(|error| tracing::warn!("{name}: no socket for metrics: {error}"))
            .ok();
        let serve = |listener: io::Result<TcpListener>| {
            listener.and_then(|listener| serve_everyone(listener, report))
        };
        match address.map(|(address, listener)| (address, serve(listener))) {
            Some((address, Ok(()))) => tracing::warn!(
                "{name}: metrics at http://{address}/metrics: every user of this machine can read them"
            ),
            Some((address, Err(error))) => {
                tracing::warn!("{name}: no metrics at {address}: {error}");
            }
            None => {}
        }
        Self { _socket }
    }
}

/// Serves root and the user of this process, with names.
fn serve_owner(
    (listener, socket): (UnixListener, BoundSocket),
    report: Arc<Report>,
) -> io::Result<BoundSocket> {
    let text = move || exposition(&report(), Naming::Named);
    let accept = move || Ok(listener.accept()?.0);
    serve(accept, is_allowed, Hosts::All, text)?;
    Ok(socket)
}

/// Serves every user of this machine, without names.
fn serve_everyone(listener: TcpListener, report: Arc<Report>) -> io::Result<()> {
    let last = Mutex::new(None);
    let text = move || recent(&mut last.lock(), || exposition(&report(), Naming::Anonymous));
    serve(move || Ok(listener.accept()?.0), |_| true, Hosts::Loopback, text)
}

/// Returns the last text if it is recent, and makes another one otherwise.
fn recent(last: &mut Option<(Instant, String)>, make: impl FnOnce() -> String) -> String {
    match last {
        Some((made, text)) if made.elapsed() < AGE_MAX => text.clone(),
        _ => last.insert((Instant::now(), make())).1.clone(),
    }
}

/// Starts the thread that accepts connections. The thread ends with the process.
fn serve<C: Connection + Send + 'static>(
    accept: impl Fn() -> io::Result<C> + Send + 'static,
    is_allowed: impl Fn(&C) -> bool + Send + 'static,
    hosts: Hosts,
    text: impl Fn() -> String + Send + Sync + 'static,
) -> io::Result<()> {
    let text = Arc::new(text);
    let clients = Arc::new(AtomicUsize::new(0));
    let run = move || loop {
        let Ok(client) = accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        if clients.load(Ordering::Relaxed) < CLIENTS_MAX && is_allowed(&client) {
            spawn(client, hosts, &text, &clients);
        }
    };
    thread::Builder::new().name("sfs-metrics".into()).spawn(run)?;
    Ok(())
}

/// Serves `client` in a thread of its own, or closes the connection if there is none.
fn spawn<C: Connection + Send + 'static>(
    mut client: C,
    hosts: Hosts,
    text: &Arc<impl Fn() -> String + Send + Sync + 'static>,
    clients: &Arc<AtomicUsize>,
) {
    clients.fetch_add(1, Ordering::Relaxed);
    let (text, serving) = (text.clone(), clients.clone());
    let run = move || {
        if let Err(error) = answer(&mut client, hosts, PATIENCE, || text()) {
            tracing::debug!("metrics: {error}");
        }
        drop(client);
        serving.fetch_sub(1, Ordering::Relaxed);
    };
    if thread::Builder::new().name("sfs-scrape".into()).spawn(run).is_err() {
        clients.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_made_at_most_once_in_its_age() {
        let mut last = None;
        assert_eq!(recent(&mut last, || "one".into()), "one");
        assert_eq!(recent(&mut last, || unreachable!("the text is recent")), "one");
        last = last.map(|(made, text)| (made - AGE_MAX, text));
        assert_eq!(recent(&mut last, || "two".into()), "two");
    }
}
