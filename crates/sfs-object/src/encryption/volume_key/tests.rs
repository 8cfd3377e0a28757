use std::sync::atomic::{AtomicU64, Ordering};

use sfs_testkit::SeededRng;

use super::*;
use crate::name::Epoch;

const NAME: ObjectName = ObjectName::Data(Epoch(3), 5);

fn key(of_file: u8, salt: u8) -> VolumeKey {
    VolumeKey::new(&FileKey::new([of_file; 32]), [salt; 16])
}

/// Nonces that count.
fn counting() -> impl Fn(&mut [u8]) + Send + Sync {
    let count = AtomicU64::new(1);
    move |bytes| bytes.fill(count.fetch_add(1, Ordering::Relaxed) as u8)
}

fn encrypted(content: &[u8]) -> Vec<u8> {
    key(1, 2).encrypt(NAME, content, &counting())
}

fn decrypted(bytes: &[u8]) -> Option<Vec<u8>> {
    key(1, 2).decrypt(NAME, bytes.to_vec())
}

/// Content with two whole frames between the first and the last.
fn large() -> Vec<u8> {
    SeededRng::new(1).bytes(HEADER_LEN + 2 * FRAME_LEN + 100)
}

/// Offsets in the encrypted bytes of [`large`] at which frames begin, and the end.
fn frame_begins() -> [usize; 5] {
    let first = PREFIX_LEN + HEADER_LEN + OVERHEAD;
    let full = FRAME_LEN + OVERHEAD;
    [PREFIX_LEN, first, first + full, first + 2 * full, first + 2 * full + 100 + OVERHEAD]
}

/// An independent implementation (HChaCha20 and XChaCha20-Poly1305 in Python) has made these bytes.
#[test]
fn golden_bytes() {
    let bytes = key(1, 2).encrypt(NAME, &[7; HEADER_LEN + 4], &counting());
    let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex, GOLDEN.replace([' ', '\n'], ""));
}

const GOLDEN: &str = "5346536501000000 \
                      02020202020202020202020202020202 \
                      010101010101010101010101010101010101010101010101094eb7c59f5297ed78ebc5c2ba5cfb7e7e6cc827e68d5052 \
                      58fca29339d2216ae272038c7382babc76cc40d16933f17e58143de084e3eb4fcd85c149c5cbfa7a0202020202020202 \
                      02020202020202020202020202020202d9c9df9f0c1db6674fa761466cbe28708f4f430b";

#[test]
fn contents_are_decrypted_as_they_were_encrypted() {
    let full = HEADER_LEN + FRAME_LEN;
    for len in [0, 1, 47, 48, 49, full - 1, full, full + 1, full + FRAME_LEN] {
        let content = SeededRng::new(len as u64).bytes(len);
        let bytes = encrypted(&content);
        assert_eq!(decrypted(&bytes), Some(content), "{len} bytes");
    }
}

#[test]
fn no_changed_bit_is_decrypted() {
    let bytes = encrypted(&[7; HEADER_LEN + 10]);
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decrypted(&changed), None, "bit {bit}");
    }
    let bytes = encrypted(&large());
    for begin in &frame_begins()[..4] {
        for at in [0, NONCE_LEN, NONCE_LEN + 47, OVERHEAD, OVERHEAD + 47] {
            let mut changed = bytes.clone();
            changed[begin + at] ^= 1;
            assert_eq!(decrypted(&changed), None, "byte {}", begin + at);
        }
    }
}

#[test]
fn no_other_length_is_decrypted() {
    for bytes in [encrypted(&[7; HEADER_LEN]), encrypted(&[7; HEADER_LEN + 10])] {
        for len in 0..bytes.len() {
            assert_eq!(decrypted(&bytes[..len]), None, "{len} bytes");
        }
        for more in [1, 40, 100] {
            assert_eq!(decrypted(&[&bytes[..], &vec![0; more]].concat()), None);
        }
    }
    let bytes = encrypted(&large());
    for begin in &frame_begins()[..4] {
        for len in [*begin, begin + 1, begin + NONCE_LEN, begin + OVERHEAD, begin + 100] {
            assert_eq!(decrypted(&bytes[..len]), None, "{len} bytes");
        }
    }
}

#[test]
fn frames_have_one_place() {
    let bytes = encrypted(&large());
    let begins = frame_begins();
    let frames = begins.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect::<Vec<_>>();
    let joined = |order: &[usize]| {
        let frames = order.iter().flat_map(|at| frames[*at]).copied();
        bytes[..PREFIX_LEN].iter().copied().chain(frames).collect::<Vec<_>>()
    };
    assert_eq!(decrypted(&joined(&[0, 1, 2, 3])), Some(large()));
    for order in [
        &[0, 2, 1, 3][..],
        &[0, 1, 3],
        &[0, 1, 1, 2, 3],
        &[0, 2, 3],
        &[1, 2, 3],
        &[0, 3],
        &[0, 1, 2],
    ] {
        assert_eq!(decrypted(&joined(order)), None, "{order:?}");
    }
    // A frame of another object, at its own index.
    let other = key(1, 2).encrypt(ObjectName::Data(Epoch(3), 6), &large(), &counting());
    let mut mixed = bytes.clone();
    mixed[begins[1]..begins[2]].copy_from_slice(&other[begins[1]..begins[2]]);
    assert_eq!(decrypted(&mixed), None);
}

#[test]
fn objects_have_one_name_volume_and_key() {
    let bytes = encrypted(b"content");
    for other in [
        ObjectName::Data(Epoch(3), 6),
        ObjectName::Data(Epoch(4), 5),
        ObjectName::Log(Epoch(3), 5),
        ObjectName::Manifest(Epoch(3), 5),
        ObjectName::Claim(Epoch(3)),
    ] {
        assert_eq!(key(1, 2).decrypt(other, bytes.clone()), None, "{other}");
    }
    assert_eq!(key(1, 3).decrypt(NAME, bytes.clone()), None, "another volume");
    assert_eq!(key(2, 2).decrypt(NAME, bytes.clone()), None, "another key");
    // Another volume with the same key file, whose salt was replaced by ours.
    let mut moved = key(1, 3).encrypt(NAME, b"content", &counting());
    moved[..PREFIX_LEN].copy_from_slice(&bytes[..PREFIX_LEN]);
    assert_eq!(decrypted(&moved), None);
}

#[test]
fn parts_are_decrypted_and_damaged_ones_are_not() {
    let content = large();
    let bytes = encrypted(&content);
    let mut random = SeededRng::new(2);
    let read = |part: Part, bytes: &[u8]| key(1, 2).decrypt_part(part, stored(part).of(bytes));
    let end = content.len() as u64;
    let edges = [0, 1, 47, 48, 49, 48 + (64 << 10), 48 + (128 << 10), end - 1, end, end + 9];
    for offset in edges {
        for len in edges.into_iter().chain([random.below(end)]) {
            let part = Part { name: NAME, offset, len };
            assert_eq!(read(part, &bytes), Some(part.of(&content)), "{part:?}");
        }
    }
    // A page is one frame.
    let page = Part { name: NAME, offset: HEADER_LEN as u64, len: 64 << 10 };
    assert_eq!(stored(page).len, (FRAME_LEN + OVERHEAD) as u64);
    let begins = frame_begins();
    for at in [begins[1], begins[1] + 30, begins[2] - 1] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert_eq!(read(page, &changed), None);
    }
    let second = Part { offset: page.offset + page.len, ..page };
    assert_eq!(key(1, 2).decrypt_part(page, stored(second).of(&bytes)), None);
    let other = Part { name: ObjectName::Data(Epoch(3), 6), ..page };
    assert_eq!(key(1, 2).decrypt_part(other, stored(page).of(&bytes)), None);
    // An object that was cut is shorter, and its last frame is not the last one.
    assert_eq!(read(page, &bytes[..begins[1]]), Some(Vec::new()));
    assert_eq!(read(page, &bytes[..begins[2] - 1]), None);
}
