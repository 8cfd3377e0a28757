//! Tests with bytes that no kernel sends.

use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::FromBytes;

use super::requests::operations;
use super::{message, samples};
use crate::protocol::argument_reader::ArgumentReader;
use crate::protocol::fuse_operation::FuseOperation;
use crate::protocol::fuse_request::FuseRequest;
use crate::protocol::init_features::{InitFlags, Offer, SessionConfig};

/// Decodes a request and reads everything in it.
fn exhaust(bytes: &[u8], flags: InitFlags) {
    if let Ok(request) = FuseRequest::decode(bytes, flags) {
        assert!(request.extensions.groups().count() <= bytes.len());
        if let FuseOperation::BatchForget(batch) = request.operation {
            assert!(batch.iter().count() <= bytes.len());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_to_a_request_or_an_error(bytes in vec(any::<u8>(), 0..300), long in any::<bool>()) {
        let flags = if long { InitFlags::SETXATTR_EXT } else { InitFlags::empty() };
        exhaust(&bytes, flags);
        for opcode in 0..64 {
            exhaust(&message(opcode, 1, &bytes, &[]), flags);
        }
    }

    #[test]
    fn a_flipped_bit_gives_a_request_or_an_error(
        sample in samples(),
        which in any::<prop::sample::Index>(),
        bit in any::<prop::sample::Index>(),
        extensions in vec(any::<u64>(), 0..4),
    ) {
        let all = operations(&sample);
        let (_, opcode, arguments) = &all[which.index(all.len())];
        let extensions: Vec<u8> = extensions.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bytes = message(*opcode, 1, arguments, &extensions);
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        exhaust(&bytes, InitFlags::SETXATTR_EXT);
    }

    #[test]
    fn any_init_gives_a_reply_or_an_error(bytes in vec(any::<u8>(), 0..80), config in configs()) {
        if let Ok(offer) = Offer::decode(ArgumentReader::new(&bytes)) {
            let agreed = offer.agree(&config);
            let out = offer.answer(&agreed, &config);
            prop_assert!(offer.flags.contains(agreed.flags));
            prop_assert_eq!(u32::from(out.max_pages) * rustix::param::page_size() as u32, out.max_write);
            prop_assert!(out.minor <= 45);
        } else {
            // Only an offer that lacks a field is refused.
            let flags = bytes.get(12..).and_then(|rest| u32::read_from_prefix(rest).ok());
            let is_extended = flags.is_some_and(|(flags, _)| flags & 1 << 30 != 0);
            prop_assert!(bytes.len() < 16 || is_extended && bytes.len() < 64);
        }
    }
}

prop_compose! {
    fn configs()(bits in any::<u64>(), max_write in any::<u32>()) -> SessionConfig {
        SessionConfig { flags: InitFlags::from_bits_truncate(bits), max_write, ..SessionConfig::default() }
    }
}
