use std::sync::Arc;

use super::super::system_random;
use super::*;
use crate::error::ObjectError;
use crate::memory_store::MemoryStore;
use crate::reader::read_newest;
use crate::thinning::Thinning;
use crate::writer::Writer;
use crate::{Nonce, Recovered};

fn file_key(byte: u8) -> FileKey {
    FileKey::new([byte; 32])
}

type Opened = Result<EncryptedStore<Arc<MemoryStore>>, EncryptionError>;

fn open(store: &Arc<MemoryStore>, key: Option<u8>) -> Opened {
    let key = key.map(file_key);
    EncryptedStore::open(store.clone(), key.as_ref(), Box::new(system_random))
}

/// Writes a volume with three manifests and a log object.
fn write(store: &EncryptedStore<Arc<MemoryStore>>) {
    let taken = Writer::take_over(store, Nonce([1; 16]), Thinning::OF_VOLUMES);
    let (mut writer, _) = taken.expect("a free epoch");
    for state in [b"first", b"other", b"third"] {
        writer.publish(1, state.to_vec()).expect("a manifest");
    }
    writer.append(&[b"content of a file"]).expect("a log object");
}

fn newest(store: &EncryptedStore<Arc<MemoryStore>>) -> Result<Recovered, ObjectError> {
    read_newest(store, Thinning::OF_VOLUMES)
}

#[test]
fn the_first_claim_says_which_key_is_needed() {
    for (key, wrong, expected) in [
        (None, Some(1), EncryptionError::NotEncrypted),
        (Some(1), None, EncryptionError::KeyMissing),
        (Some(1), Some(2), EncryptionError::WrongKey),
    ] {
        let store = Arc::new(MemoryStore::default());
        let volume = open(&store, key).expect("nothing is there");
        assert_eq!(volume.is_encrypted(), key.is_some());
        write(&volume);
        let names = store.names();
        assert_eq!(open(&store, wrong).err(), Some(expected));
        assert_eq!(store.names(), names);
        let again = open(&store, key).expect("the same key");
        let newest = newest(&again).expect("the volume");
        assert_eq!(newest.manifest.state, b"third");
        assert_eq!(newest.log, [b"content of a file"]);
    }
    let store = MemoryStore::default();
    let name = ObjectName::Claim(Epoch(1));
    store.put(&Object { name, bytes: b"SFSe\x02\0\0\0 of the future".to_vec() });
    for key in [None, Some(1)] {
        let of = key.map(file_key);
        let opened = EncryptedStore::open(&store, of.as_ref(), Box::new(system_random));
        assert_eq!(opened.err(), Some(EncryptionError::Later));
    }
}

#[test]
fn the_store_has_no_content_and_two_volumes_nothing_in_common() {
    let stores = [(); 2].map(|()| Arc::new(MemoryStore::default()));
    for store in &stores {
        write(&open(store, Some(1)).expect("an empty store"));
    }
    for name in stores[0].names() {
        let bytes = stores[0].get(name).expect("memory").expect("an object");
        for word in [&b"content"[..], b"third", b"SFSo"] {
            assert!(bytes.windows(word.len()).all(|part| part != word), "{name}");
        }
        let others = stores[1].get(name).expect("memory").expect("an object");
        assert_eq!(bytes.len(), others.len());
        assert_ne!(bytes[8..24], others[8..24], "{name}");
    }
    // An object of the other volume, at the same name.
    let name = ObjectName::Log(Epoch(1), 1);
    let bytes = stores[1].get(name).expect("memory").expect("an object");
    stores[0].delete(name).expect("memory");
    stores[0].put(&Object { name, bytes });
    let found = newest(&open(&stores[0], Some(1)).expect("the key"));
    assert_eq!(found, Err(ObjectError::Damaged(name)));
}

#[test]
fn objects_that_were_moved_or_changed_are_damaged() {
    let store = Arc::new(MemoryStore::default());
    let volume = open(&store, Some(1)).expect("an empty store");
    write(&volume);
    let manifest = |number| ObjectName::Manifest(Epoch(1), number);
    let read = |name| store.get(name).expect("memory").expect("an object");
    // An older manifest under the number of the newest, and of the next.
    let (old, new) = (read(manifest(2)), read(manifest(3)));
    store.put(&Object { name: manifest(4), bytes: old.clone() });
    assert_eq!(newest(&volume), Err(ObjectError::Damaged(manifest(4))));
    store.delete(manifest(4)).expect("memory");
    for bytes in [old, new[..new.len() - 1].to_vec(), Vec::new()] {
        store.delete(manifest(3)).expect("memory");
        store.put(&Object { name: manifest(3), bytes });
        assert_eq!(newest(&volume), Err(ObjectError::Damaged(manifest(3))));
    }
    store.delete(manifest(3)).expect("memory");
    store.put(&Object { name: manifest(3), bytes: new });
    assert_eq!(newest(&volume).map(|found| found.manifest.state), Ok(b"third".to_vec()));
}

/// A store that answers nothing for some time, and whose PUTs take effect or not.
#[derive(Default)]
struct Silent {
    objects: MemoryStore,
    /// Bytes of each PUT.
    seen: Mutex<Vec<Vec<u8>>>,
    /// Replies to come, each with whether the PUT takes effect.
    replies: Mutex<Vec<(PutReply, bool)>>,
}

impl ObjectStore for Silent {
    fn put_all(&self, objects: &[Object]) -> Result<Vec<PutReply>, Stopped> {
        let put = |object: &Object| {
            self.seen.lock().push(object.bytes.clone());
            let (reply, takes_effect) =
                self.replies.lock().pop().unwrap_or((PutReply::Stored, true));
            if takes_effect {
                self.objects.put(object);
            }
            reply
        };
        Ok(objects.iter().map(put).collect())
    }

    fn get(&self, name: ObjectName) -> Result<Option<Vec<u8>>, Stopped> {
        self.objects.get(name)
    }

    fn delete(&self, name: ObjectName) -> Result<(), Stopped> {
        self.objects.delete(name)
    }
}

#[test]
fn a_repeated_put_has_the_same_bytes_and_other_content_has_other_nonces() {
    let silent = Arc::new(Silent::default());
    let key = file_key(1);
    let volume = EncryptedStore::open(silent.clone(), Some(&key), Box::new(system_random));
    let volume = volume.expect("an empty store");
    let name = ObjectName::Claim(Epoch(1));
    let object = |content: &[u8]| Object { name, bytes: content.to_vec() };
    *silent.replies.lock() = vec![(PutReply::Unknown, false); 3];
    volume.put_all(&[object(b"one")]).expect("no reply");
    assert_eq!(volume.get(name), Ok(None));
    volume.put_all(&[object(b"one")]).expect("no reply");
    volume.put_all(&[object(b"two")]).expect("no reply");
    volume.put_all(&[object(b"two")]).expect("a reply");
    let seen = std::mem::take(&mut *silent.seen.lock());
    assert!(seen[0] == seen[1] && seen[2] == seen[3]);
    assert_ne!(seen[0][24..48], seen[2][24..48], "each content has a nonce of its own");
    assert!(volume.unconfirmed.lock().is_empty());
    assert_eq!(volume.get(name), Ok(Some(b"two".to_vec())));
    // What a lost reply has stored is found, and kept no longer.
    let other = Object { name: ObjectName::Claim(Epoch(2)), bytes: b"three".to_vec() };
    *silent.replies.lock() = vec![(PutReply::Unknown, true)];
    volume.put_all(std::slice::from_ref(&other)).expect("no reply");
    assert_eq!(volume.unconfirmed.lock().len(), 1);
    assert_eq!(volume.get(other.name), Ok(Some(other.bytes)));
    assert!(volume.unconfirmed.lock().is_empty());
}
