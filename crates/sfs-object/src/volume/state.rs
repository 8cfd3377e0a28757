//! The state of a volume in a manifest.
//!
//! Magic and version, identity, shape, time, whether the writer has released the volume, host, map, log objects of earlier epochs that
//! follow the map, and objects that are to be deleted. The frame of the object has the checksum.

use super::region_map::RegionMap;
use super::shape::Shape;
use crate::name::ObjectName;
use crate::wire::{Decoder, Encoder};

const MAGIC: [u8; 8] = *b"SFSvol\x01\0";

/// Characters of the name of a machine that are shown.
const HOST_LEN_MAX: usize = 255;

/// State of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeState {
    /// Random bits that tell volumes apart.
    pub id: [u8; 16],
    /// Blocks and regions.
    pub shape: Shape,
    /// Seconds since 1970 at which the writer has published the state, by its clock.
    pub written_secs: u64,
    /// `true` if the writer has ended the use of the volume: another one may begin.
    pub is_released: bool,
    /// Name of the writer's machine.
    pub host: String,
    pub(crate) map: RegionMap,
    /// Log objects that follow the map, in order.
    pub(crate) log: Vec<ObjectName>,
    /// Objects that nothing needs.
    pub(crate) garbage: Vec<ObjectName>,
}

impl VolumeState {
    /// Returns the state of a volume of zeros.
    pub(crate) fn empty(id: [u8; 16], shape: Shape) -> Self {
        Self {
            id,
            shape,
            written_secs: 0,
            is_released: false,
            host: String::new(),
            map: RegionMap::default(),
            log: Vec::new(),
            garbage: Vec::new(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder(MAGIC.to_vec());
        to.0.extend(self.id);
        to.number(self.shape.volume_blocks);
        to.number(self.shape.region_blocks);
        to.number(self.written_secs);
        to.byte(u8::from(self.is_released));
        to.text(&self.host);
        self.map.encode(&mut to);
        to.names(&self.log);
        to.names(&self.garbage);
        to.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let (magic, id) = (from.array()?, from.array()?);
        let shape = Shape { volume_blocks: from.number()?, region_blocks: from.number()? };
        if magic != MAGIC || !shape.is_sound() {
            return None;
        }
        let state = Self {
            id,
            shape,
            written_secs: from.number()?,
            is_released: match from.byte()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            host: printable(&from.text()?),
            map: RegionMap::decode(&mut from, shape.regions())?,
            log: from.names()?,
            garbage: from.names()?,
        };
        from.0.is_empty().then_some(state)
    }
}

/// Returns a name for terminals and logs, whoever has written it.
fn printable(name: &str) -> String {
    name.chars().filter(|char| !char.is_control()).take(HOST_LEN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Epoch;

    #[test]
    fn a_state_is_read_as_it_was_written_and_no_shorter_one() {
        let mut state =
            VolumeState::empty([3; 16], Shape { volume_blocks: 1000, region_blocks: 64 });
        for (region, number) in [(0, 7), (1, 8), (2, 9), (5, 10), (6, 3)] {
            state.map.set(region, (Epoch(2), number));
        }
        state.log = vec![ObjectName::Log(Epoch(1), 4)];
        state.garbage = vec![ObjectName::Data(Epoch(1), 1), ObjectName::Manifest(Epoch(1), 2)];
        (state.host, state.is_released, state.written_secs) = ("host".into(), true, 9);
        let bytes = state.encode();
        assert_eq!(VolumeState::decode(&bytes).as_ref(), Some(&state));
        for len in 0..bytes.len() {
            assert_eq!(VolumeState::decode(&bytes[..len]), None, "{len} bytes");
        }
        // A name that would change the terminal.
        let mut hostile = VolumeState::decode(&bytes).expect("a state");
        hostile.host = format!("\u{1b}[31m{}\n", "x".repeat(1000));
        let read = VolumeState::decode(&hostile.encode()).expect("a state");
        assert_eq!(read.host, format!("[31m{}", "x".repeat(251)));
        // A map beyond the volume.
        let mut state =
            VolumeState::empty([3; 16], Shape { volume_blocks: 1000, region_blocks: 64 });
        state.map.set(16, (Epoch(1), 1));
        assert_eq!(VolumeState::decode(&state.encode()), None);
    }
}
