//! Trying whether the first PUT of a name decides its content.
//!
//! Two PUTs one after the other, and eight at once, each with bytes of its own: one of each kind has to win, and its bytes have to be read
//! back. The names are below `probe/` and random; the objects are deleted afterwards.

use std::hash::{BuildHasher, RandomState};

use futures_util::future::join_all;
use sfs_object::store_protocol::Reply;

use crate::operations::Store;

/// PUTs of one name at once.
const RACERS: u8 = 8;

/// Tries the store. The reply is `Done` if it can be used.
pub(crate) async fn probe(store: &Store) -> Reply {
    let number = RandomState::new().hash_one(std::process::id());
    for (kind, is_race) in [("order", false), ("race", true)] {
        let path = store.below(&format!("probe/{kind}-{number:016x}"));
        let reply = decide(store, &path, is_race).await;
        // What remains is of no use to anybody, and harms nobody.
        let _ = store.delete(&path).await;
        if reply != Reply::Done {
            return reply;
        }
    }
    Reply::Done
}

async fn decide(store: &Store, path: &object_store::path::Path, is_race: bool) -> Reply {
    let put = |racer: u8| store.put(path, vec![racer; 64]);
    let replies = match is_race {
        false => vec![put(0).await, put(1).await],
        true => join_all((0..RACERS).map(put)).await,
    };
    let uncertain = |reply: &&Reply| matches!(reply, Reply::Unknown(_) | Reply::Refused(_));
    // In a race a server may answer that another PUT is under way, and only then.
    if let Some(reply) = replies.iter().find(uncertain)
        && (!is_race || matches!(reply, Reply::Refused(_)))
    {
        return reply.clone();
    }
    let winners = replies.iter().filter(|reply| **reply == Reply::Done).count();
    let is_unsure = replies.iter().any(|reply| matches!(reply, Reply::Unknown(_)));
    match (winners, store.get(path).await) {
        (_, reply @ (Reply::Unknown(_) | Reply::Refused(_))) => reply,
        (1, Reply::Found(bytes)) if bytes.len() == 64 => {
            let winner = replies.iter().position(|reply| *reply == Reply::Done);
            let is_first = bytes.iter().all(|byte| Some(usize::from(*byte)) == winner);
            if is_first { Reply::Done } else { refused("the bytes of another PUT are read back") }
        }
        (0, _) if is_unsure => {
            Reply::Unknown("the object store: no PUT of eight was answered".into())
        }
        (0, _) => refused("no PUT of a free name was taken"),
        (1, _) => refused("an object that was just stored cannot be read"),
        _ => refused("two PUTs with If-None-Match: * of one name were both taken"),
    }
}

fn refused(what: &str) -> Reply {
    Reply::Refused(format!(
        "this object store cannot hold a volume, because it does not honour the condition that the name of an object is free: {what}"
    ))
}
