//! A minimal responder of HTTP/1.1: one request a connection, `GET` or `HEAD` of `/metrics`.
//!
//! The head of a request has a bound on its length and on the time until it is complete, so a client that sends
//! slowly, too much or nonsense costs little. Headers other than `Host` are not looked at, and a body is not read.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::socket_deadline::{is_passing, left};

/// Maximum length of the head of a request, in bytes. Prometheus sends about 300.
const HEAD_LEN_MAX: usize = 8 << 10;

/// Type of the text format of Prometheus.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Connection whose waits can be bounded.
pub(super) trait Connection: Read + Write {
    /// Bounds the next read or write.
    fn set_timeout(&self, timeout: Duration) -> io::Result<()>;

    /// Announces that no more bytes follow.
    fn end(&self) -> io::Result<()>;
}

impl Connection for UnixStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Connection for TcpStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// `Host` headers that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hosts {
    /// All: the socket's mode decides who may ask.
    All,
    /// `localhost` and loopback addresses, so that no web page can ask by a name of its own.
    Loopback,
}

/// Bounds on the time of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Time until the request is complete.
    pub(super) request: Duration,
    /// Time for taking the response, once it is made.
    pub(super) response: Duration,
}

/// Answers one request; `text` makes the metrics.
///
/// # Errors
///
/// `TimedOut` when `patience` ends, and the errors of the connection. The client has no answer then.
pub(super) fn answer(
    client: &mut impl Connection,
    hosts: Hosts,
    patience: Patience,
    text: impl FnOnce() -> String,
) -> io::Result<()> {
    let response = match read_head(client, Instant::now() + patience.request)? {
        Head::TooLong => Response::refusal("431 Request Header Fields Too Large", "too long"),
        Head::Complete(head) => respond(&head, hosts, text),
    };
    send(client, response.bytes().as_slice(), Instant::now() + patience.response)?;
    client.end()
}

/// Head of a request.
enum Head {
    Complete(Vec<u8>),
    TooLong,
}

fn read_head(client: &mut impl Connection, end: Instant) -> io::Result<Head> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        client.set_timeout(left(end)?)?;
        // The end may have come in parts.
        let searched = head.len().saturating_sub(3);
        match client.read(&mut piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => head.extend_from_slice(&piece[..len]),
            Err(error) => is_passing(error)?,
        }
        let is_complete = |end: &[u8]| head[searched..].windows(end.len()).any(|part| part == end);
        if is_complete(b"\r\n\r\n") || is_complete(b"\n\n") {
            return Ok(Head::Complete(head));
        }
        if head.len() > HEAD_LEN_MAX {
            return Ok(Head::TooLong);
        }
    }
}

fn respond(head: &[u8], hosts: Hosts, text: impl FnOnce() -> String) -> Response {
    let Ok(head) = str::from_utf8(head) else { return Response::malformed() };
    let mut lines = head.lines();
    let request: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = request[..] else { return Response::malformed() };
    if !version.starts_with("HTTP/1.") {
        return Response::malformed();
    }
    if hosts == Hosts::Loopback && !lines.filter_map(host).all(is_loopback) {
        return Response::refusal("421 Misdirected Request", "ask by a loopback address");
    }
    if !matches!(method, "GET" | "HEAD") {
        return Response::refusal("405 Method Not Allowed", "only GET and HEAD");
    }
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    if path != "/metrics" {
        return Response::refusal("404 Not Found", "the metrics are at /metrics");
    }
    let body = text();
    let response = Response { status: "200 OK", kind: EXPOSITION, len: body.len(), body };
    if method == "HEAD" { Response { body: String::new(), ..response } } else { response }
}

/// Returns the value of a `Host` header.
fn host(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(':')?;
    name.eq_ignore_ascii_case("host").then_some(value.trim())
}

/// Returns whether a host, with or without a port, is this machine by a loopback address or `localhost`.
fn is_loopback(host: &str) -> bool {
    let address = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(address, _)| address),
    };
    address.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Response with a body of text.
struct Response {
    status: &'static str,
    kind: &'static str,
    /// Length of the body, which is left out in the response to `HEAD`.
    len: usize,
    body: String,
}

impl Response {
    fn refusal(status: &'static str, reason: &str) -> Self {
        let body = format!("{reason}\n");
        Self { status, kind: "text/plain; charset=utf-8", len: body.len(), body }
    }

    fn malformed() -> Self {
        Self::refusal("400 Bad Request", "not a request of HTTP/1")
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { status, kind, len, body } = self;
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n{allow}\
             Connection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

fn send(client: &mut impl Connection, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        client.set_timeout(left(end)?)?;
        match client.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) => is_passing(error)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the response to a head.
    fn said(head: &[u8], hosts: Hosts) -> String {
        let response = respond(head, hosts, || "sfs_files 3\n".to_owned());
        String::from_utf8(response.bytes()).expect("UTF-8")
    }

    #[test]
    fn metrics_are_served_to_get_and_head() {
        let got = said(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Hosts::All);
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\nsfs_files 3\n"));
        assert!(got.contains("Content-Length: 12\r\n"), "{got}");
        let head = said(b"HEAD /metrics?a=b HTTP/1.0\r\n\r\n", Hosts::All);
        assert_eq!(head, got.replace("sfs_files 3\n", ""));
    }

    #[test]
    fn other_requests_are_refused() {
        for (head, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /metrics/../etc HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
            (b"GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            (b"\xff\xfe\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
        ] {
            let said = said(head, Hosts::All);
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{head:?}: {said}");
        }
    }

    #[test]
    fn a_name_that_leads_to_loopback_is_refused() {
        let status = |host: &str| {
            let head = format!("GET /metrics HTTP/1.1\r\nhOST: {host}\r\n\r\n");
            said(head.as_bytes(), Hosts::Loopback)[9..12].to_owned()
        };
        for host in ["127.0.0.1:9100", "127.0.0.1", "[::1]:9100", "localhost:1", "LOCALHOST"] {
            assert_eq!(status(host), "200", "{host}");
        }
        for host in ["evil.example", "evil.example:9100", "10.0.0.1", "[::2]:1", ""] {
            assert_eq!(status(host), "421", "{host}");
        }
    }

    #[test]
    fn slow_long_and_deaf_clients_end_at_their_bounds() {
        let moment = Duration::from_millis(60);
        let soon = || Patience { request: moment, response: moment };
        let (mut here, mut there) = UnixStream::pair().expect("sockets");
        there.write_all(b"GET /met").expect("sent");
        let error = answer(&mut here, Hosts::All, soon(), String::new).expect_err("no request");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let (mut here, mut there) = UnixStream::pair().expect("sockets");
        there.write_all(&[b'a'; HEAD_LEN_MAX + 1]).expect("sent");
        answer(&mut here, Hosts::All, soon(), String::new).expect("refused");
        let mut said = String::new();
        there.read_to_string(&mut said).expect("a response");
        assert!(said.starts_with("HTTP/1.1 431 "), "{said}");
        let (mut here, mut there) = UnixStream::pair().expect("sockets");
        there.write_all(b"GET /metrics HTTP/1.1\n\n").expect("sent");
        let long = || "x".repeat(8 << 20);
        let error = answer(&mut here, Hosts::All, soon(), long).expect_err("nobody reads");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let (mut here, there) = UnixStream::pair().expect("sockets");
        drop(there);
        let error = answer(&mut here, Hosts::All, soon(), String::new).expect_err("no request");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}
