//! Serving the socket: many requests at once, until the other end is closed.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use sfs_object::store_protocol::{GREETING, REQUEST_LEN, Reply, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc};

use crate::operations::Answer;
use crate::url;

/// Requests to the store that are under way at once.
const AT_ONCE: usize = 64;
/// Bytes of PUTs in memory, unless one has more.
const BYTES_AT_ONCE: u32 = 96 << 20;
/// Bytes of replies in the socket.
const SENT_AT_ONCE: usize = 1 << 20;
/// Longest time of a request. A signed request is valid for longer.
const REQUEST_WAIT: Duration = Duration::from_secs(200);

/// Lets more bytes wait in a socket than the system does by itself, as far as this user may: a part of an object is some MiB, and each time
/// the socket is full both processes have to be woken.
pub(crate) fn widen(socket: impl AsFd) {
    if sockopt::set_socket_send_buffer_size_force(&socket, SENT_AT_ONCE).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(&socket, SENT_AT_ONCE);
    }
}

/// Serves the store at `url` until the other end of the socket is closed.
pub(crate) fn run(socket: UnixStream, url: &str) -> io::Result<()> {
    // An error means that a provider is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    socket.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let (reader, writer) = tokio::net::UnixStream::from_std(socket)?.into_split();
        serve(reader, writer, url).await
    });
    // Whoever has closed the socket does not wait for what is under way.
    runtime.shutdown_background();
    result
}

async fn serve(mut reader: OwnedReadHalf, mut writer: OwnedWriteHalf, url: &str) -> io::Result<()> {
    writer.write_all(&GREETING).await?;
    let store = match url::store_at(url) {
        Ok(store) => Arc::new(store),
        Err(reason) => return write(&mut writer, 0, &Reply::Refused(reason)).await,
    };
    write(&mut writer, 0, &Reply::Done).await?;
    // Whoever sends a request may read replies only afterwards, so no reply may hold up the reading of requests.
    let (replies, mut outbox) = mpsc::unbounded_channel::<(u64, Answer)>();
    let sender = tokio::spawn(async move {
        while let Some((number, reply)) = outbox.recv().await {
            match reply {
                Answer::Reply(reply) => write(&mut writer, number, &reply).await?,
                Answer::Found(bytes) => {
                    let head = Reply::head_of_found(number, bytes.content_length());
                    writer.write_all(&head).await?;
                    for chunk in &bytes {
                        writer.write_all(chunk).await?;
                    }
                }
            }
        }
        Ok::<_, io::Error>(())
    });
    let (turns, memory) =
        (Arc::new(Semaphore::new(AT_ONCE)), Arc::new(Semaphore::new(BYTES_AT_ONCE as usize)));
    while let Some((number, request, body_len)) = next(&mut reader).await? {
        let room = u32::try_from(body_len).unwrap_or(u32::MAX).min(BYTES_AT_ONCE);
        let closed = |_| io::Error::other("a semaphore was closed");
        let room = memory.clone().acquire_many_owned(room).await.map_err(closed)?;
        let mut body = Vec::new();
        if (&mut reader).take(body_len).read_to_end(&mut body).await? as u64 != body_len {
            break;
        }
        let turn = turns.clone().acquire_owned().await.map_err(closed)?;
        let (store, replies) = (store.clone(), replies.clone());
        tokio::spawn(async move {
            let reply = tokio::time::timeout(REQUEST_WAIT, store.answer(request, body)).await;
            let late =
                |_| Reply::Unknown(format!("no answer within {} s", REQUEST_WAIT.as_secs())).into();
            match reply.map_err(late) {
                // The other end may be closed meanwhile.
                Ok(Some(reply)) | Err(reply) => drop(replies.send((number, reply))),
                // The other end looks for the store again by another process.
                Ok(None) => std::process::exit(1),
            }
            drop((turn, room));
        });
    }
    drop(replies);
    sender.abort();
    Ok(())
}

/// Returns the next request, or `None` at the end.
async fn next(reader: &mut OwnedReadHalf) -> io::Result<Option<(u64, Request, u64)>> {
    let mut head = [0; REQUEST_LEN];
    match reader.read_exact(&mut head).await {
        Ok(_) => Ok(Some(Request::decode(&head)?)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        // The other process was killed with requests that it had not read the replies of.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(error),
    }
}

async fn write(writer: &mut OwnedWriteHalf, number: u64, reply: &Reply) -> io::Result<()> {
    writer.write_all(&reply.encode(number)).await?;
    writer.write_all(reply.body()).await
}
