//! Tests with requests that Linux 6.18 (FUSE 7.45) sent to a filesystem that agreed to every feature.
//!
//! Each line of the recording has the bytes of one request and its decoded form. A program made the
//! system calls on a mount of type `fuseblk`; repeated requests are left out.

use sfs_fuse::{FuseRequest, InitFlags};

const RECORDED: &str = include_str!("recorded-6.18.txt");

fn bytes_of(digits: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    (0..digits.len()).step_by(2).map(digit).collect()
}

#[test]
fn every_recorded_request_is_decoded() {
    for line in RECORDED.lines() {
        let (digits, meaning) = line.split_once(' ').expect("bytes and meaning");
        let bytes = bytes_of(digits);
        let request = FuseRequest::decode(&bytes, InitFlags::SETXATTR_EXT).expect(meaning);
        assert_eq!(format!("{} {:?}", request.node, request.operation), meaning);
    }
}

#[test]
fn a_truncated_recorded_request_is_an_error() {
    for line in RECORDED.lines() {
        let (digits, meaning) = line.split_once(' ').expect("bytes and meaning");
        let bytes = bytes_of(digits);
        for len in 0..bytes.len() {
            let mut cut = bytes[..len].to_vec();
            assert!(FuseRequest::decode(&cut, InitFlags::SETXATTR_EXT).is_err(), "{meaning}");
            if len >= 4 {
                cut[..4].copy_from_slice(&(len as u32).to_le_bytes());
                assert!(FuseRequest::decode(&cut, InitFlags::SETXATTR_EXT).is_err(), "{meaning}");
            }
        }
    }
}
