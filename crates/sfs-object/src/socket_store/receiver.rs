//! Receiving replies from a socket whose reads time out.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::spares::Spares;
use crate::store_protocol::{REPLY_LEN, Reply};

/// Bytes that are read at once.
const READ_LEN: usize = 256 << 10;

/// The receiving end of a connection, and the part of a reply that has come.
pub(super) struct Receiver {
    socket: UnixStream,
    head: [u8; REPLY_LEN],
    head_len: usize,
    body: Vec<u8>,
    /// Bytes of the body that have come. The memory may have more, of an earlier one.
    have: usize,
    spares: Arc<Spares>,
}

impl Receiver {
    pub(super) fn new(socket: UnixStream, spares: Arc<Spares>) -> Self {
        Self { socket, head: [0; REPLY_LEN], head_len: 0, body: Vec::new(), have: 0, spares }
    }

    /// Returns the next reply, or `None` if it has not come as a whole before a read has timed out.
    pub(super) fn receive(&mut self) -> io::Result<Option<(u64, Reply)>> {
        match self.try_receive() {
            Ok(reply) => Ok(Some(reply)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn try_receive(&mut self) -> io::Result<(u64, Reply)> {
        while self.head_len < REPLY_LEN {
            self.head_len += read(&mut self.socket, &mut self.head[self.head_len..])?;
        }
        let (number, kind, body_len) = Reply::decode_head(&self.head)?;
        let body_len = usize::try_from(body_len).map_err(io::Error::other)?;
        if self.body.is_empty() {
            self.body = self.spares.take(body_len);
        }
        while self.have < body_len {
            // Memory grows with what comes, not with what is announced.
            let end = body_len.min(self.have + READ_LEN);
            if self.body.len() < end {
                self.body.resize(end, 0);
            }
            self.have += read(&mut self.socket, &mut self.body[self.have..end])?;
        }
        self.body.truncate(body_len);
        self.have = 0;
        self.head_len = 0;
        Ok((number, Reply::decode(kind, std::mem::take(&mut self.body))?))
    }
}

fn read(socket: &mut UnixStream, to: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.read(to) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reply_that_comes_in_pieces_is_received() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        ours.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket");
        let mut receiver = Receiver::new(ours, Arc::default());
        let reply = Reply::Found(vec![7; 100]);
        let bytes = [&reply.encode(3)[..], reply.body()].concat();
        for (at, byte) in bytes.iter().enumerate() {
            assert_eq!(receiver.receive().expect("no end"), None, "byte {at}");
            theirs.write_all(std::slice::from_ref(byte)).expect("a socket");
        }
        assert_eq!(receiver.receive().expect("no end"), Some((3, reply)));
        drop(theirs);
        let error = receiver.receive().expect_err("the end");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
