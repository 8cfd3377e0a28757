//! A proxy between a program and a server, which cuts connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::process::text;

/// Bytes that are passed on at once.
const PIECE: usize = 16 << 10;

/// A source of the number of bytes after which the next connection is cut; `None` has it left alone.
type Moments = Box<dyn FnMut() -> Option<u64> + Send>;

/// A proxy, which ends with the value.
pub struct CuttingProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    moments: Mutex<Moments>,
    cuts: AtomicU64,
    is_over: AtomicBool,
}

impl CuttingProxy {
    /// Starts a proxy before `server`. It asks `moments` for each connection, after how many bytes of both directions it cuts
    /// that one.
    ///
    /// # Errors
    ///
    /// If there is no port.
    pub fn start(
        server: SocketAddr,
        moments: impl FnMut() -> Option<u64> + Send + 'static,
    ) -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
        let address = listener.local_addr().map_err(text)?;
        let shared = Arc::new(Shared {
            server,
            moments: Mutex::new(Box::new(moments)),
            cuts: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let of_thread = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if of_thread.is_over.load(Ordering::Relaxed) {
                    return;
                }
                // Without a server the client sees a connection that ends.
                if let Ok(server) = TcpStream::connect(of_thread.server) {
                    of_thread.join(client, server);
                }
            }
        });
        Ok(Self { address, shared })
    }

    /// Returns the address that the proxy listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections that were cut.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }
}

impl Drop for CuttingProxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let left = self.moments.lock().unwrap_or_else(PoisonError::into_inner)();
        let left = Arc::new(AtomicU64::new(left.unwrap_or(u64::MAX)));
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let clones = (client.try_clone(), server.try_clone());
        let (Ok(client_too), Ok(server_too)) = clones else { return };
        for (from, to) in [(client, server), (server_too, client_too)] {
            let (shared, left) = (self.clone(), left.clone());
            thread::spawn(move || shared.pass(from, to, &left));
        }
    }

    /// Passes bytes on until `left` is 0.
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, left: &AtomicU64) {
        let mut piece = vec![0; PIECE];
        loop {
            let len = match from.read(&mut piece) {
                Ok(0) => {
                    // The other direction goes on.
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Err(_) => break,
                Ok(len) => len as u64,
            };
            let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                Some(if left == u64::MAX { left } else { left.saturating_sub(len) })
            });
            let before = before.unwrap_or_default();
            let passed = len.min(before);
            if to.write_all(&piece[..passed as usize]).is_err() {
                break;
            }
            if passed < len || before == len {
                self.cuts.fetch_add(u64::from(before > 0), Ordering::Relaxed);
                break;
            }
        }
        for side in [from, to] {
            let _ = side.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::SimulatedStore;

    fn exchange(address: SocketAddr, body: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("a server");
        let head = format!(
            "PUT /bucket/name HTTP/1.1\r\nif-none-match: *\r\ncontent-length: {}",
            body.len()
        );
        let _ = write!(stream, "{head}\r\n\r\n{body}");
        let _ = stream.shutdown(Shutdown::Write);
        let mut reply = String::new();
        let _ = stream.read_to_string(&mut reply);
        reply
    }

    #[test]
    fn a_connection_ends_after_the_bytes_that_were_said() {
        let store = SimulatedStore::start().expect("a port");
        // In the request, in the reply, and never.
        let mut moments = [None, Some(100), Some(20)].to_vec();
        let next = move || moments.pop().expect("three connections");
        let proxy = CuttingProxy::start(store.address(), next).expect("a port");
        assert_eq!(exchange(proxy.address(), "the content of the object"), "");
        assert!(!store.holds(b"the content"), "the request was cut");
        let reply = exchange(proxy.address(), "the content of the object");
        assert!(store.holds(b"the content") && reply.len() < 30, "{reply}");
        assert_eq!(proxy.cuts(), 2);
        let reply = exchange(proxy.address(), "other content");
        assert!(reply.starts_with("HTTP/1.1 412 "), "{reply}");
    }
}
