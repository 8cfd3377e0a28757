//! Doing the work of requests.

use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, GetResult, GetResultPayload, ObjectStore, ObjectStoreExt, PutMode,
    PutPayload,
};
use sfs_object::store_protocol::{BODY_LEN_MAX, Reply, Request};
use sfs_object::{ObjectName, Part};

use crate::directory::{Directory, Presence};
use crate::http_reply::observed;
use crate::{outcome, probe};

/// Largest number of bytes of an object that is no manifest: more than 16 MiB of pieces with their records, and a region.
const SMALL_LEN_MAX: u64 = 64 << 20;

/// Length from which on a part at the begin of an object is taken from a request for all of it: servers have less to do then, and it is
/// probably all.
const WHOLE_LEN_MIN: u64 = 1 << 20;

/// Length from which on a piece of an object is kept as it has come.
const LONG_PIECE: usize = 64 << 10;

/// Length from which on pieces that were copied together are one of the answer.
const JOINED_PIECE: usize = 1 << 20;

/// The answer to a request.
pub(crate) enum Answer {
    /// One without bytes of an object.
    Reply(Reply),
    /// Bytes of an object, as they have come.
    Found(PutPayload),
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

impl Answer {
    /// Returns the reply, with its bytes in one piece.
    pub(crate) fn into_reply(self) -> Reply {
        match self {
            Self::Reply(reply) => reply,
            Self::Found(payload) => {
                let mut bytes = Vec::with_capacity(payload.content_length());
                payload.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
                Reply::Found(bytes)
            }
        }
    }
}

/// Returns the largest number of bytes that an object of this name may have.
fn len_max(name: ObjectName) -> u64 {
    if matches!(name, ObjectName::Manifest(..)) { BODY_LEN_MAX } else { SMALL_LEN_MAX }
}

/// An object store, and the prefix of the names of one volume.
pub(crate) struct Store {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    /// The directory that the store is in, if it is one.
    pub(crate) directory: Option<Directory>,
}

impl Store {
    /// Does what a request asks for. Returns `None` if the directory of the store was replaced: nobody knows what was done where.
    pub(crate) async fn answer(&self, request: Request, body: Vec<u8>) -> Option<Answer> {
        let silent =
            || Some(Reply::Unknown("the directory of the objects does not answer".into()).into());
        match self.look().await {
            Presence::There => {}
            Presence::Gone => return None,
            Presence::Silent => return silent(),
        }
        let reply = self.answer_now(request, body).await;
        match self.look().await {
            Presence::There => Some(reply),
            Presence::Gone => None,
            Presence::Silent => silent(),
        }
    }

    async fn look(&self) -> Presence {
        match &self.directory {
            Some(directory) => directory.look().await,
            None => Presence::There,
        }
    }

    async fn answer_now(&self, request: Request, body: Vec<u8>) -> Answer {
        match request {
            Request::Put(name) => self.put(&self.path(name), body).await.into(),
            Request::Get(name) => {
                self.read(&self.path(name), GetOptions::default(), len_max(name)).await
            }
            Request::GetPart(part) => self.get_part(part).await,
            Request::Delete(name) => self.delete(&self.path(name)).await.into(),
            Request::Probe => probe::probe(self).await.into(),
        }
    }

    fn path(&self, name: ObjectName) -> Path {
        self.below(&name.to_string())
    }

    /// Returns the path of a name below the prefix.
    pub(crate) fn below(&self, name: &str) -> Path {
        Path::from_iter(self.prefix.parts().chain(name.split('/').map(Into::into)))
    }

    /// Stores an object, if its name is free.
    pub(crate) async fn put(&self, path: &Path, body: Vec<u8>) -> Reply {
        let put = self.store.put_opts(path, PutPayload::from(body), PutMode::Create.into());
        match observed(put).await {
            (Ok(_), _) => Reply::Done,
            (Err(error), http) => outcome::of_put(&error, &http),
        }
    }

    /// Reads an object.
    pub(crate) async fn get(&self, path: &Path) -> Reply {
        self.read(path, GetOptions::default(), SMALL_LEN_MAX).await.into_reply()
    }

    /// Reads at most `len_max` bytes: others may have put anything there.
    async fn read(&self, path: &Path, options: GetOptions, len_max: u64) -> Answer {
        let larger = || {
            Reply::Refused(format!(
                "{path} is larger than any object of a volume: it was not written by SFS"
            ))
        };
        self.read_up_to(path, options, len_max).await.unwrap_or_else(|| larger().into())
    }

    /// Reads at most `len_max` bytes. Returns `None` if there are more; a store that says so at once sends none of them.
    async fn read_up_to(&self, path: &Path, options: GetOptions, len_max: u64) -> Option<Answer> {
        let read = async {
            let found = self.store.get_opts(path, options).await?;
            let len = found.range.end.saturating_sub(found.range.start);
            if len > len_max { Ok(None) } else { payload(found).await.map(Some) }
        };
        match observed(read).await {
            (Ok(found), _) => {
                let found = found.filter(|bytes| bytes.content_length() as u64 <= len_max);
                found.map(Answer::Found)
            }
            (Err(error), http) => Some(outcome::of_access(&error, &http).into()),
        }
    }

    async fn get_part(&self, part: Part) -> Answer {
        let path = self.path(part.name);
        let end = part.offset.saturating_add(part.len);
        if part.offset == 0
            && part.len >= WHOLE_LEN_MIN
            && let Some(answer) = self.read_up_to(&path, GetOptions::default(), part.len).await
        {
            return answer;
        }
        if part.len > 0 {
            let range = GetRange::Bounded(part.offset..end);
            let reply = self.read(&path, GetOptions::new().with_range(Some(range)), part.len).await;
            if !matches!(reply, Answer::Reply(Reply::Unknown(_) | Reply::Refused(_))) {
                return reply;
            }
            // A store refuses a part that begins beyond the end.
            return match observed(self.store.head(&path)).await {
                (Ok(object), _) if object.size <= part.offset => Reply::Found(Vec::new()).into(),
                _ => reply,
            };
        }
        match observed(self.store.head(&path)).await {
            (Ok(_), _) => Reply::Found(Vec::new()).into(),
            (Err(error), http) => outcome::of_access(&error, &http).into(),
        }
    }

    /// Deletes an object, if it exists.
    pub(crate) async fn delete(&self, path: &Path) -> Reply {
        let (result, http) = observed(self.store.delete(path)).await;
        match result {
            Ok(()) => Reply::Done,
            // Azure answers 404 inside of a reply about several objects.
            Err(error @ Error::NotFound { .. }) if !outcome::names_bucket(&error) => Reply::Done,
            Err(error) => outcome::of_access(&error, &http),
        }
    }
}

/// Returns the bytes that a store sends, as they come. Short pieces are copied together: each keeps a buffer of the connection, of 8 KiB at least.
async fn payload(found: GetResult) -> object_store::Result<PutPayload> {
    match found.payload {
        GetResultPayload::Stream(mut stream) => {
            let (mut pieces, mut short) = (Vec::new(), Vec::new());
            while let Some(piece) = stream.try_next().await? {
                if piece.len() < LONG_PIECE {
                    short.extend_from_slice(&piece);
                }
                if !short.is_empty() && (piece.len() >= LONG_PIECE || short.len() >= JOINED_PIECE) {
                    pieces.push(std::mem::take(&mut short).into());
                }
                if piece.len() >= LONG_PIECE {
                    pieces.push(piece);
                }
            }
            if !short.is_empty() {
                pieces.push(short.into());
            }
            Ok(pieces.into_iter().collect())
        }
        // Larger pieces than a stream of a file has.
        GetResultPayload::File(..) => found.bytes().await.map(Into::into),
    }
}
