//! The daemon's end of the control socket.
//!
//! One thread accepts clients, and each client is served by a thread of its own, within limits on their number, on the time
//! for its request, and on that for each part of the reply. A recording keeps its thread until it ends. Clients that watch for the end of the mount are kept until [`ControlServer::end`]. A mount works without
//! the socket.

use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use sfs_system::mountinfo::DeviceNumber;

use super::json_line;
use super::messages::{ControlReply, ControlRequest};
use super::socket_path::{self, BoundSocket};
use crate::exit_error::{ExitError, ExitStatus};
use crate::fuse::LossReport;
use crate::handover::state::{DescriptorUse, HandedDescriptors};

/// Maximum length of a request, in bytes; a request with every option is much shorter.
const REQUEST_LEN_MAX: usize = 16 << 10;

/// Time for a client to send its request, and to take the reply.
const CLIENT_WAIT_MAX: Duration = Duration::from_secs(5);

/// Largest number of clients that are served at the same time.
const CLIENTS_MAX: usize = 8;

/// Largest number of clients that watch for the end.
const WATCHERS_MAX: usize = 16;

/// Pause after accept(2) failed, for want of a descriptor for example.
const PAUSE: Duration = Duration::from_millis(200);

/// Handler of requests. No call but [`HandleRequest::trace`] waits for a client.
pub(crate) trait HandleRequest: Send + Sync + 'static {
    /// Answers every request but [`ControlRequest::Trace`] and [`ControlRequest::Upgrade`]; is told of each [`ControlRequest::Watch`].
    fn handle(&self, request: &ControlRequest) -> ControlReply;

    /// Answers [`ControlRequest::Trace`]; ends when `client` closes the connection, or does not read for some time.
    fn trace(&self, client: &UnixStream, names: bool) -> io::Result<()>;

    /// Answers [`ControlRequest::Upgrade`]. `sockets` are those of the server, for another program.
    fn upgrade(
        &self,
        client: &UnixStream,
        sockets: HandedDescriptors,
        pause_max: Duration,
    ) -> Upgrade;
}

/// Answer to [`ControlRequest::Upgrade`].
pub(crate) struct Upgrade {
    /// `None` if another process answers.
    pub(crate) reply: Option<ControlReply>,
    pub(crate) then: AfterUpgrade,
}

/// Next step of this process, once the reply is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterUpgrade {
    /// It serves on.
    ServeOn,
    /// It ends, and does nothing more: another one serves.
    End,
    /// It tells those that watch, and ends with an error: the mount is lost.
    EndWithError,
}

/// Control socket of a mount.
pub(crate) struct ControlServer {
    shared: Arc<ServerState>,
    socket: BoundSocket,
}

struct ServerState {
    handler: Arc<dyn HandleRequest>,
    clients: AtomicUsize,
    listener: UnixListener,
    /// Held while a client is accepted, and during a handover: who connects meanwhile is a client of the program that serves then.
    accepting: Mutex<()>,
    /// Clients that watch for the end; `None` once the end was reported.
    watchers: Mutex<Option<Vec<UnixStream>>>,
}

/// Control socket that listens, and that no thread serves yet.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    socket: BoundSocket,
    /// Clients that watch for the end of the mount, from another program.
    watchers: Vec<UnixStream>,
}

impl ControlSocket {
    /// Listens for requests about the filesystem with device number `number`.
    pub(crate) fn listen(number: DeviceNumber) -> io::Result<Self> {
        let (listener, socket) = socket_path::listen(
            &socket_path::directories(geteuid().as_raw()),
            &socket_path::name(number),
        )?;
        Ok(Self { listener, socket, watchers: Vec::new() })
    }

    /// Goes on with the socket of another program, which has it until `owns` is `true`.
    pub(crate) fn adopt(
        listener: OwnedFd,
        watchers: Vec<OwnedFd>,
        owns: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let (listener, socket) = socket_path::adopt(listener, owns)?;
        let watchers = watchers.into_iter().map(UnixStream::from).collect();
        Ok(Self { listener, socket, watchers })
    }

    /// Returns a duplicate of the descriptor.
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        self.listener.try_clone().ok().map(OwnedFd::from)
    }

    /// Returns the directory of the socket's file.
    pub(crate) fn directory(&self) -> &Path {
        self.socket.directory()
    }

    /// Starts the thread that serves clients.
    pub(crate) fn serve(self, handler: Arc<impl HandleRequest>) -> io::Result<ControlServer> {
        let Self { listener, socket, watchers } = self;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(ServerState {
            handler,
            clients: AtomicUsize::new(0),
            listener: listener.try_clone()?,
            accepting: Mutex::default(),
            watchers: Mutex::new(Some(watchers)),
        });
        let accepting = shared.clone();
        thread::Builder::new()
            .name("sfs-control".into())
            .spawn(move || accept(&listener, &accepting))?;
        Ok(ControlServer { shared, socket })
    }
}

impl ControlServer {
    /// Reports the end to the clients that watch for it: the outcome of the last checkpoint, and data that was lost
    /// before. A later client finds no socket.
    pub(crate) fn end(self, outcome: &Result<(), ExitError>, lost: LossReport) {
        drop(self.socket);
        let reply = match outcome {
            Ok(()) if lost.bytes == 0 => ControlReply::Written,
            Ok(()) if lost.unreported.is_empty() && !lost.has_failures => {
                ControlReply::WrittenExcept(lost.bytes)
            }
            Ok(()) => ControlReply::WrittenUnreported(lost),
            Err(failure) => failure.clone().into(),
        };
        for watcher in self.shared.watchers.lock().take().into_iter().flatten() {
            let _ = json_line::send(&watcher, &reply, Instant::now() + CLIENT_WAIT_MAX);
        }
    }
}

fn accept(listener: &UnixListener, shared: &Arc<ServerState>) {
    loop {
        // Another process may accept from the same socket, so only a look tells whether there is a client.
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        let _ = poll(&mut polled, None);
        let accepting = shared.accepting.lock();
        let accepted = listener.accept();
        drop(accepting);
        let client = match accepted {
            Ok((client, _)) => client,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => {
                thread::sleep(PAUSE);
                continue;
            }
        };
        if shared.clients.load(Ordering::Relaxed) >= CLIENTS_MAX || !is_allowed(&client) {
            continue; // Closes the connection.
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

/// Checks the user of a client: root or the user who runs the daemon. The directory's mode keeps others out already, unless root has changed it.
pub(crate) fn is_allowed(client: &UnixStream) -> bool {
    let own = geteuid().as_raw();
    getsockopt(client, PeerCredentials).is_ok_and(|peer| [0, own].contains(&peer.uid()))
}

fn serve(client: UnixStream, shared: &ServerState) -> io::Result<()> {
    let request = json_line::receive(&client, REQUEST_LEN_MAX, Instant::now() + CLIENT_WAIT_MAX);
    let reply = match &request {
        Ok(request @ ControlRequest::Watch) => {
            shared.handler.handle(request);
            return watch(client, shared);
        }
        Ok(ControlRequest::Trace { names }) => return shared.handler.trace(&client, *names),
        Ok(ControlRequest::Upgrade { pause_max_secs }) => {
            return upgrade(&client, shared, Duration::from_secs(*pause_max_secs));
        }
        Ok(request) => shared.handler.handle(request),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            ExitError::usage("the request is unknown to this version of sfs").into()
        }
        Err(_) => return request.map(drop),
    };
    json_line::send(&client, &reply, Instant::now() + CLIENT_WAIT_MAX)
}

/// Hands the mount over. On success this process ends, and those that watch for the end are clients of the other program.
fn upgrade(client: &UnixStream, shared: &ServerState, pause_max: Duration) -> io::Result<()> {
    let accepting = shared.accepting.lock();
    let watchers = shared.watchers.lock();
    let mut sockets = HandedDescriptors::default();
    sockets.add(DescriptorUse::Control, shared.listener.try_clone()?);
    for watcher in watchers.iter().flatten() {
        sockets.add(DescriptorUse::Watcher, watcher.try_clone()?);
    }
    let Upgrade { reply, then } = shared.handler.upgrade(client, sockets, pause_max);
    let sent = match &reply {
        None => Ok(()),
        Some(reply) => json_line::send(client, reply, Instant::now() + CLIENT_WAIT_MAX),
    };
    match then {
        AfterUpgrade::ServeOn => {}
        // Nothing is closed or removed: the other program uses it.
        AfterUpgrade::End => std::process::exit(0),
        AfterUpgrade::EndWithError => {
            for (watcher, reply) in watchers.iter().flatten().zip(reply.iter().cycle()) {
                let _ = json_line::send(watcher, reply, Instant::now() + CLIENT_WAIT_MAX);
            }
            std::process::exit(ExitStatus::Mount as i32);
        }
    }
    drop((watchers, accepting));
    sent
}

fn watch(client: UnixStream, shared: &ServerState) -> io::Result<()> {
    let mut watchers = shared.watchers.lock();
    let Some(watchers) = watchers.as_mut() else { return Ok(()) };
    watchers.retain(is_connected);
    if watchers.len() >= WATCHERS_MAX {
        return Err(io::Error::other("too many clients watch for the end"));
    }
    // The reply has a few bytes, which a new socket takes before the client reads.
    json_line::send(&client, &ControlReply::Watching, Instant::now() + CLIENT_WAIT_MAX)?;
    watchers.push(client);
    Ok(())
}

/// Returns whether a client that waits has not closed its connection.
pub(super) fn is_connected(mut client: &UnixStream) -> bool {
    let silent = client.set_nonblocking(true).and_then(|()| client.read(&mut [0]));
    let is_waiting = silent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    is_waiting && client.set_nonblocking(false).is_ok()
}
