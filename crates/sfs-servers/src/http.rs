//! Requests and replies of HTTP/1.1, as far as clients of S3 need them.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Largest body.
const BODY_MAX: usize = 1 << 30;

/// A request.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path without the query, decoded.
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    /// Headers, with names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// A reply.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Length that the reply to HEAD names.
    pub(crate) len_of_head: Option<usize>,
}

impl Request {
    /// Reads the next request of a connection; `None` at its end.
    pub(crate) fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let query = pairs.map(|(name, value)| (decoded(name), decoded(value))).collect();
        let mut request =
            Self { method: method.to_owned(), path: decoded(path), query, ..Self::default() };
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some((name, value)) = line.split_once(':') else { break };
            request.headers.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
        if request.headers.get("expect").is_some_and(|what| what.starts_with("100")) {
            reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let len = request.headers.get("content-length").and_then(|len| len.parse().ok());
        let len = len.unwrap_or(0);
        if len > BODY_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        request.body = vec![0; len];
        reader.read_exact(&mut request.body)?;
        Ok(Some(request))
    }
}

impl Reply {
    pub(crate) fn empty(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Returns a reply with XML.
    pub(crate) fn xml(status: u16, text: &str) -> Self {
        let headers = vec![("content-type".to_owned(), "application/xml".to_owned())];
        let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{text}").into_bytes();
        Self { status, headers, body, len_of_head: None }
    }

    /// Returns the reply of a failure.
    pub(crate) fn error(status: u16, code: &str) -> Self {
        Self::xml(status, &format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>"))
    }

    pub(crate) fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        let len = self.len_of_head.unwrap_or(self.body.len());
        let mut head = format!("HTTP/1.1 {} X\r\ncontent-length: {len}\r\n", self.status);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all((head + "\r\n").as_bytes())?;
        stream.write_all(&self.body)
    }
}

/// Decodes `%41`.
pub(crate) fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut found = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3).and_then(|code| u8::from_str_radix(code, 16).ok()))
            .flatten();
        found.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&found).into_owned()
}

/// Encodes all but letters, digits and a few signs.
pub(crate) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_and_decoded() {
        assert_eq!(decoded("a%2Fb%20c%"), "a/b c%");
        assert_eq!(encoded("a/b c"), "a/b%20c");
    }
}
