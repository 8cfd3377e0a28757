//! Programs under test, and an HTTP server that answers as a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sfs_object::{Durability, Limits, Nonce, OpenRequest, Patience, SocketStore, StoreProgram};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_sfs-store");

/// Of tests: an error comes soon.
pub(crate) const SHORT: Patience =
    Patience { unreachable: Some(Duration::from_secs(3)), refusing: Duration::ZERO };

/// Returns the store at a URL, and its program.
pub(crate) fn store_at(url: &str, patience: Patience) -> (Arc<SocketStore>, Arc<StoreProgram>) {
    let program = Arc::new(StoreProgram::new(PROGRAM.into(), url.into()));
    let of_store = program.clone();
    let store = SocketStore::new(Box::new(move || of_store.connect()), patience);
    (Arc::new(store), program)
}

/// Returns the store of a bucket at an endpoint of S3, with these keys in the environment.
pub(crate) fn bucket_at(endpoint: &str, keys: [&str; 2], bucket: &str) -> Arc<SocketStore> {
    let environment = [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", keys[0]),
        ("AWS_SECRET_ACCESS_KEY", keys[1]),
        ("AWS_REGION", "us-east-1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let url = format!("s3://{bucket}/volume");
    let connect = move || {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(PROGRAM);
        command.arg(&url).envs(environment.clone()).stdin(Stdio::from(OwnedFd::from(theirs)));
        // It ends with its connection; who waits for it does not matter here.
        let mut child = command.spawn()?;
        thread::spawn(move || child.wait());
        Ok(ours)
    };
    Arc::new(SocketStore::new(Box::new(connect), SHORT))
}

/// Returns the request of a writer, whose flushes wait for the store.
pub(crate) fn request(nonce: u8) -> OpenRequest {
    OpenRequest {
        nonce: Nonce([nonce; 16]),
        host: "host".to_owned(),
        now: 1_000,
        takes_over: false,
        durability: Durability::Remote,
        limits: Limits::of_mount(1 << 30),
    }
}

/// A request as the server has received it.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    /// Lines of the head, in lower case.
    pub(crate) head: Vec<String>,
}

/// Character at the end of a body that is cut there: it is announced and not sent.
pub(crate) const CUT: char = '\0';

/// The reaction of the server to a request: a status and a body, or nothing but closing the connection.
pub(crate) type Answer = Option<(u16, String)>;

/// A server whose answers a function gives.
pub(crate) struct HttpServer {
    pub(crate) endpoint: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl HttpServer {
    pub(crate) fn new(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let received = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (Arc::new(answer), received.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, seen) = (answer.clone(), seen.clone());
                thread::spawn(move || serve(stream, &*answer, &seen));
            }
        });
        Self { endpoint, received }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no panic").clone()
    }
}

/// Serves one content for ever, in pieces of these lengths in turn, each in a packet of its own.
pub(crate) fn dribble(content: Vec<u8>, pieces: Vec<usize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            stream.set_nodelay(true).expect("a socket");
            let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|len| len > 2) {
                line.clear();
            }
            let head = format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n", content.len());
            let head = format!("{head}last-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n");
            let _ = write!(stream, "{head}etag: \"e\"\r\nconnection: close\r\n\r\n");
            let mut rest = &content[..];
            for len in pieces.iter().cycle() {
                let (piece, after) = rest.split_at(rest.len().min(*len));
                if piece.is_empty() || stream.write_all(piece).is_err() {
                    break;
                }
                rest = after;
            }
        }
    });
    endpoint
}

fn serve(
    mut stream: TcpStream,
    answer: &(impl Fn(&Received) -> Answer + ?Sized),
    seen: &Mutex<Vec<Received>>,
) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.trim().is_empty() => break,
            Ok(_) => head.push(line.trim().to_lowercase()),
        }
    }
    let len = head.iter().find_map(|line| line.strip_prefix("content-length:"));
    let len = len.and_then(|len| len.trim().parse().ok()).unwrap_or(0);
    let mut body = vec![0; len];
    reader.read_exact(&mut body).expect("a body");
    let method = head[0].split(' ').next().unwrap_or_default().to_owned();
    let request = Received { method, head };
    seen.lock().expect("no panic").push(request.clone());
    let Some((status, body)) = answer(&request) else { return };
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\netag: \"e\"\r\n", body.len());
    let head = format!("{head}last-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n");
    let sent = body.trim_end_matches(CUT);
    let _ = write!(stream, "{head}connection: close\r\n\r\n{sent}");
}
