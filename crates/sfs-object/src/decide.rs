//! Deciding names: PUTs are repeated, with the same bytes, until each name has its content for ever.

use crate::error::ObjectError;
use crate::frame::Frame;
use crate::mutant::{Mutant, mutated};
use crate::name::ObjectName;
use crate::store::{Object, ObjectStore, PutReply};

/// Final content of a name.
pub(crate) enum Decision {
    /// The bytes that were to be stored.
    Ours,
    /// Another object.
    Theirs(Frame),
    /// An object that was deleted since.
    Deleted,
}

/// Stores `frame` under each name, all at once, and returns what each name holds.
pub(crate) fn decide_all(
    store: &impl ObjectStore,
    frames: &[(ObjectName, Frame)],
) -> Result<Vec<Decision>, ObjectError> {
    let objects = frames
        .iter()
        .map(|(name, frame)| Object { name: *name, bytes: frame.encode(*name) })
        .collect::<Vec<_>>();
    let replies = store.put_all(&objects)?;
    assert_eq!(replies.len(), objects.len(), "a store answers each PUT");
    objects.iter().zip(replies).map(|(object, reply)| settle(store, object, reply)).collect()
}

/// Stores `frame` under `name`, and returns what the name holds.
pub(crate) fn decide(
    store: &impl ObjectStore,
    name: ObjectName,
    frame: Frame,
) -> Result<Decision, ObjectError> {
    decide_all(store, &[(name, frame)]).map(|mut decisions| decisions.remove(0))
}

/// Finds out what the name of `object` holds, after a first PUT with this reply.
///
/// A name that is taken and cannot be read was deleted. One PUT more makes sure of it: a store may say "taken" of a name for which
/// another PUT was under way, and failed.
pub(crate) fn settle(
    store: &impl ObjectStore,
    object: &Object,
    mut reply: PutReply,
) -> Result<Decision, ObjectError> {
    let mut was_taken = false;
    loop {
        match reply {
            PutReply::Stored => return Ok(Decision::Ours),
            PutReply::Unknown if mutated(Mutant::UnknownIsStored) => return Ok(Decision::Ours),
            PutReply::Taken if mutated(Mutant::TakenIsOurs) => return Ok(Decision::Ours),
            PutReply::Taken | PutReply::Unknown => {}
        }
        match store.get(object.name)? {
            Some(bytes) if bytes == object.bytes => return Ok(Decision::Ours),
            Some(bytes) => return Frame::decode(object.name, &bytes).map(Decision::Theirs),
            None if was_taken && reply == PutReply::Taken => return Ok(Decision::Deleted),
            None => was_taken |= reply == PutReply::Taken,
        }
        reply = store.put_all(std::slice::from_ref(object))?.remove(0);
    }
}
