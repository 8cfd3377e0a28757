//! The connection between two programs: each message is its length, and one value as JSON. Descriptors go with the length.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest number of descriptors in a message; the kernel takes 253.
pub(super) const DESCRIPTORS_MAX: usize = 128;

/// Largest length of a message in bytes: the references to ten million files take about 250 MB.
const LEN_MAX: u32 = 1 << 30;

/// Number of bytes that are read at once.
const PART_LEN: usize = 64 << 10;

/// Connection to the other program.
#[derive(Debug)]
pub(crate) struct Link(UnixStream);

impl Link {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(socket.into())
    }

    /// Sends `value` with `descriptors`.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the other side has not taken the message by `end`.
    pub(super) fn send(
        &self,
        value: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
        end: Instant,
    ) -> io::Result<()> {
        let bytes = serde_json::to_vec(value)?;
        let len = u32::try_from(bytes.len()).ok().filter(|len| *len <= LEN_MAX);
        let len = len.ok_or(ErrorKind::InvalidInput)?.to_le_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(ErrorKind::InvalidInput.into());
        }
        self.0.set_write_timeout(Some(left(end)?))?;
        let parts = [IoSlice::new(&len)];
        let sent = loop {
            match sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => self.0.set_write_timeout(Some(left(end)?))?,
                sent => break late(sent.map_err(io::Error::from))?,
            }
        };
        if sent != len.len() {
            return Err(ErrorKind::WriteZero.into());
        }
        self.write_whole(&bytes, end)
    }

    fn write_whole(&self, mut bytes: &[u8], end: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.0.set_write_timeout(Some(left(end)?))?;
            match (&self.0).write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return late(Err(error)),
            }
        }
        Ok(())
    }

    /// Reads `len` bytes. Memory is taken as they come.
    fn read_whole(&self, len: usize, end: Instant) -> io::Result<Vec<u8>> {
        let (mut bytes, mut part) = (Vec::new(), vec![0; len.min(PART_LEN)]);
        while bytes.len() < len {
            self.0.set_read_timeout(Some(left(end)?))?;
            let room = part.len().min(len - bytes.len());
            match (&self.0).read(&mut part[..room]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(got) => bytes.extend_from_slice(&part[..got]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return late(Err(error)),
            }
        }
        Ok(bytes)
    }

    /// Waits for a value.
    ///
    /// # Errors
    ///
    /// `TimedOut` at `end`; `UnexpectedEof` if the other side has ended; `InvalidData` for another value.
    pub(super) fn receive<T: DeserializeOwned>(
        &self,
        end: Instant,
    ) -> io::Result<(T, Vec<OwnedFd>)> {
        let mut len = [0; size_of::<u32>()];
        let (got, descriptors) = loop {
            self.0.set_read_timeout(Some(left(end)?))?;
            match self.receive_some(&mut len) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => break late(received)?,
            }
        };
        if got == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let rest = self.read_whole(len.len() - got, end)?;
        len[got..].copy_from_slice(&rest);
        let len = u32::from_le_bytes(len);
        if len > LEN_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        let bytes = self.read_whole(len as usize, end)?;
        Ok((serde_json::from_slice(&bytes)?, descriptors))
    }

    fn receive_some(&self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(bytes)];
        let got = recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        Ok((got, descriptors))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the time until `end`.
fn left(end: Instant) -> io::Result<std::time::Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Names the end of the time as such: a socket says that it would have to wait.
fn late<T>(outcome: io::Result<T>) -> io::Result<T> {
    outcome.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Seek;
    use std::time::Duration;

    use super::*;

    fn pair() -> (Link, Link) {
        let (one, two) = UnixStream::pair().expect("sockets");
        (Link(one), Link(two))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    #[test]
    fn values_arrive_with_their_descriptors() {
        let (one, two) = pair();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"content").expect("room");
        file.rewind().expect("a file");
        let end = Instant::now() + Duration::from_secs(10);
        let long = "x".repeat(300_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                one.send(&("first", 7), &[file.as_fd(), one.as_fd()], end).expect("sent");
                one.send(&long, &[], end).expect("sent");
            });
            let (value, descriptors): ((String, u32), _) = two.receive(end).expect("received");
            assert_eq!((value.0.as_str(), value.1, descriptors.len()), ("first", 7, 2));
            let mut text = String::new();
            let first = descriptors.into_iter().next().expect("a descriptor");
            File::from(first).read_to_string(&mut text).expect("the same file");
            assert_eq!(text, "content");
            assert_eq!(two.receive::<String>(end).expect("received").0, long);
        });
    }

    #[test]
    fn silence_an_end_and_other_bytes_are_told_apart() {
        let (one, two) = pair();
        let kind = || two.receive::<String>(soon()).expect_err("an error").kind();
        assert_eq!(kind(), ErrorKind::TimedOut);
        one.send(&7, &[], soon()).expect("sent");
        assert_eq!(kind(), ErrorKind::InvalidData);
        one.write_whole(&[255; 4], soon()).expect("sent");
        assert_eq!(kind(), ErrorKind::InvalidData, "too long");
        one.write_whole(&[9], soon()).expect("sent");
        assert_eq!(kind(), ErrorKind::TimedOut, "a part of a length");
        drop(one);
        assert_eq!(kind(), ErrorKind::UnexpectedEof);
    }

    /// The time is that of a whole message: a program that sends a byte now and then does not lengthen it.
    #[test]
    fn a_slow_message_is_given_up_at_the_end_of_its_time() {
        let (one, two) = pair();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                one.write_whole(&100u32.to_le_bytes(), soon()).expect("sent");
                for _ in 0..100 {
                    std::thread::sleep(Duration::from_millis(10));
                    if (&one.0).write_all(b"1").is_err() {
                        break;
                    }
                }
            });
            let begun = Instant::now();
            let error = two.receive::<u32>(begun + Duration::from_millis(100));
            assert_eq!(error.expect_err("it takes longer").kind(), ErrorKind::TimedOut);
            assert!(begun.elapsed() < Duration::from_millis(600));
            drop(two);
        });
    }
}
