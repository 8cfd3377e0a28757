//! Answering at the control socket.
//!
//! Owns: its threads, and those who watch for the end.
//! Promises: the volume's requests never wait for a client; a mount works without the socket.
//! Never: writes to the volume once its last checkpoint has begun.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;
use parking_lot::Mutex;
use sfs_system::mountinfo::DeviceNumber;

use super::json_line;
use super::messages::{ControlReply, ControlRequest};
use super::socket_path::{self, BoundSocket};
use crate::exit_error::ExitError;
use crate::fuse::LossReport;

/// A request with every option there is stays far below.
const REQUEST_LEN_MAX: usize = 16 << 10;

/// Time that a client has for its request, and for taking the reply.
const CLIENT_WAIT_MAX: Duration = Duration::from_secs(5);

/// Clients that are served at the same time.
const CLIENTS_MAX: usize = 8;

/// Clients that wait for the end.
const WATCHERS_MAX: usize = 16;

/// After accept(2) failed, for want of a descriptor say.
const PAUSE: Duration = Duration::from_millis(200);

/// Says what the daemon has to say. Every call has an end; none needs a client.
pub(crate) trait HandleRequest: Send + Sync + 'static {
    /// To every request but [`ControlRequest::Watch`].
    fn handle(&self, request: &ControlRequest) -> ControlReply;
}

/// The control socket of a mount.
pub(crate) struct ControlServer {
    shared: Arc<ServerState>,
    socket: BoundSocket,
}

struct ServerState {
    handler: Box<dyn HandleRequest>,
    clients: AtomicUsize,
    /// `None` when the end has been told.
    watchers: Mutex<Option<Vec<UnixStream>>>,
}

impl ControlServer {
    /// Listens for requests about filesystem `number`.
    pub(crate) fn start(number: DeviceNumber, handler: impl HandleRequest) -> io::Result<Self> {
        let (listener, socket) =
            socket_path::listen(&socket_path::directories(geteuid().as_raw()), number)?;
        let shared = Arc::new(ServerState {
            handler: Box::new(handler),
            clients: AtomicUsize::new(0),
            watchers: Mutex::new(Some(Vec::new())),
        });
        let accepting = shared.clone();
        thread::Builder::new()
            .name("sfs-control".into())
            .spawn(move || accept(&listener, &accepting))?;
        Ok(Self { shared, socket })
    }

    /// Tells those who watch how it ended, and what was lost before. Who comes later finds no socket.
    pub(crate) fn end(self, outcome: &Result<(), ExitError>, lost: LossReport) {
        drop(self.socket);
        let reply = match outcome {
            Ok(()) if lost.bytes == 0 => ControlReply::Written,
            Ok(()) if lost.unreported.is_empty() => ControlReply::WrittenExcept(lost.bytes),
            Ok(()) => ControlReply::WrittenUnreported(lost),
            Err(failure) => failure.clone().into(),
        };
        for watcher in self.shared.watchers.lock().take().into_iter().flatten() {
            let _ = json_line::send(&watcher, &reply, Instant::now() + CLIENT_WAIT_MAX);
        }
    }
}

fn accept(listener: &UnixListener, shared: &Arc<ServerState>) {
    for client in listener.incoming() {
        let Ok(client) = client else {
            thread::sleep(PAUSE);
            continue;
        };
        if shared.clients.load(Ordering::Relaxed) >= CLIENTS_MAX || !is_allowed(&client) {
            continue; // Closes it.
        }
        shared.clients.fetch_add(1, Ordering::Relaxed);
        let serving = shared.clone();
        let thread = thread::Builder::new().name("sfs-client".into()).spawn(move || {
            if let Err(error) = serve(client, &serving) {
                tracing::debug!("control socket: {error}");
            }
            serving.clients.fetch_sub(1, Ordering::Relaxed);
        });
        if thread.is_err() {
            shared.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The directory keeps others out; this does too, should root have opened it.
fn is_allowed(client: &UnixStream) -> bool {
    let own = geteuid().as_raw();
    getsockopt(client, PeerCredentials).is_ok_and(|peer| [0, own].contains(&peer.uid()))
}

fn serve(client: UnixStream, shared: &ServerState) -> io::Result<()> {
    let request = json_line::receive(&client, REQUEST_LEN_MAX, Instant::now() + CLIENT_WAIT_MAX);
    let reply = match &request {
        Ok(ControlRequest::Watch) => return watch(client, shared),
        Ok(request) => shared.handler.handle(request),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            ExitError::usage("the request makes no sense to this version of sfs").into()
        }
        Err(_) => return request.map(drop),
    };
    json_line::send(&client, &reply, Instant::now() + CLIENT_WAIT_MAX)
}

fn watch(client: UnixStream, shared: &ServerState) -> io::Result<()> {
    let mut watchers = shared.watchers.lock();
    let Some(watchers) = watchers.as_mut() else { return Ok(()) };
    watchers.retain(is_there);
    if watchers.len() >= WATCHERS_MAX {
        return Err(io::Error::other("too many wait for the end"));
    }
    // A few bytes, which a new socket takes without anybody reading.
    json_line::send(&client, &ControlReply::Watching, Instant::now() + CLIENT_WAIT_MAX)?;
    watchers.push(client);
    Ok(())
}

/// Whether a client that has nothing more to say has not gone.
fn is_there(mut client: &UnixStream) -> bool {
    let silent = client.set_nonblocking(true).and_then(|()| client.read(&mut [0]));
    let is_waiting = silent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    is_waiting && client.set_nonblocking(false).is_ok()
}
