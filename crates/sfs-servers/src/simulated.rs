//! A store of S3 in the memory of this process.
//!
//! The condition of a PUT holds, and objects are there at once. Signatures are not checked. Each request takes the time of a
//! [`Link`].

use std::io::BufReader;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::http::{Reply, Request};
use crate::link::Link;
use crate::objects::Objects;
use crate::process::text;
use crate::server::BUCKET;

/// A server in this process, which ends with the value.
#[derive(Debug)]
pub struct SimulatedStore {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    objects: Objects,
    link: Link,
    is_down: AtomicBool,
    is_over: AtomicBool,
    /// Connections, which are cut when the server goes down.
    connections: Mutex<Vec<TcpStream>>,
    requests: AtomicU64,
    /// Bytes of the bodies of requests and of replies.
    bytes: [AtomicU64; 2],
}

/// Requests to a store since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of requests.
    pub requests: u64,
    /// Bytes of their bodies.
    pub received: u64,
    /// Bytes of the bodies of the replies.
    pub sent: u64,
}

impl SimulatedStore {
    /// Starts a server over a link that takes no time.
    ///
    /// # Errors
    ///
    /// If there is no port.
    pub fn start() -> Result<Self, String> {
        Self::over(Link::instant())
    }

    /// Starts a server over a link.
    ///
    /// # Errors
    ///
    /// If there is no port.
    pub fn over(link: Link) -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
        let address = listener.local_addr().map_err(text)?;
        let shared = Arc::new(Shared {
            objects: Objects::default(),
            link,
            is_down: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            connections: Mutex::default(),
            requests: AtomicU64::new(0),
            bytes: [0, 0].map(AtomicU64::new),
        });
        let of_thread = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if of_thread.is_over.load(Ordering::Relaxed) {
                    return;
                }
                of_thread.take(stream);
            }
        });
        Ok(Self { address, shared })
    }

    /// Returns the address that the server listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Returns what passed so far.
    pub fn traffic(&self) -> Traffic {
        let [received, sent] =
            self.shared.bytes.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
        Traffic { requests: self.requests(), received, sent }
    }

    /// Returns the number of objects whose names begin with `prefix`, and their bytes.
    pub fn stored(&self, prefix: &str) -> (u64, u64) {
        self.shared.objects.stored(prefix)
    }

    /// Forgets all objects whose names begin with `prefix`, without a request.
    pub fn clear(&self, prefix: &str) {
        self.shared.objects.clear(prefix);
    }

    /// Returns whether an object has `bytes`.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        self.shared.objects.hold(bytes)
    }

    /// Cuts all connections, and those to come, until [`SimulatedStore::come_up`].
    pub fn go_down(&self) {
        self.shared.is_down.store(true, Ordering::SeqCst);
        self.shared.cut();
    }

    /// Serves again.
    pub fn come_up(&self) {
        self.shared.is_down.store(false, Ordering::SeqCst);
    }
}

impl Drop for SimulatedStore {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.shared.cut();
        // The thread that accepts wakes up, and ends.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn cut(&self) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for connection in connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn take(self: &Arc<Self>, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let Ok(other) = stream.try_clone() else { return };
        {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            connections.retain(|connection| connection.peer_addr().is_ok());
            if self.is_down.load(Ordering::SeqCst) {
                return;
            }
            connections.push(other);
        }
        let shared = self.clone();
        thread::spawn(move || shared.serve(stream));
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Ok(Some(mut request)) = Request::read(&mut reader) {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let sent = request.body.len();
            if self.is_down.load(Ordering::SeqCst) {
                break;
            }
            // What is stored is there once it has passed, and not before.
            self.link.pass_request(sent);
            let path = request.path.clone();
            let (bucket, key) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
            let reply = match bucket {
                BUCKET => self.objects.answer(&mut request, key),
                _ => Reply::error(404, "NoSuchBucket"),
            };
            for (count, len) in self.bytes.iter().zip([sent, reply.body.len()]) {
                count.fetch_add(len as u64, Ordering::Relaxed);
            }
            self.link.pass_reply(reply.body.len());
            if reply.write(reader.get_mut()).is_err() {
                break;
            }
        }
        let _ = reader.get_ref().shutdown(Shutdown::Both);
    }
}
