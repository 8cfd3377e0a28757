//! Names of translation layers on the command line.
//!
//! The names are `page-mapped[:STREAMS]`, `page-mapped-fifo`, `fast[:LOG_BLOCKS]`, `bast[:LOG_BLOCKS]` and
//! `superblock[:LOG_BLOCKS[:WIDTH]]`.
//! The printed name of a layer parses to the same layer, except that a name does not contain
//! [`Isolation`]: a parsed page-mapped layer has [`Isolation::Persistent`].

use std::fmt;
use std::str::FromStr;

use super::layer::{Collection, Isolation, Layer};

/// Default number of log blocks.
const LOG_BLOCKS: u32 = 8;

/// Default number of logical blocks of a superblock.
const WIDTH: u32 = 4;

/// Error of parsing a text that names no translation layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "use page-mapped[:STREAMS], page-mapped-fifo, fast[:LOG_BLOCKS], bast[:LOG_BLOCKS] or \
     superblock[:LOG_BLOCKS[:WIDTH]]"
)]
pub struct LayerError;

impl FromStr for Layer {
    type Err = LayerError;

    fn from_str(text: &str) -> Result<Layer, LayerError> {
        let number = |text: &str| match text.parse::<u32>() {
            Ok(0) | Err(_) => Err(LayerError),
            Ok(number) => Ok(number),
        };
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let count = parts.next().map(number).transpose()?;
        let width = parts.next().map(number).transpose()?;
        if parts.next().is_some() || (width.is_some() && name != "superblock") {
            return Err(LayerError);
        }
        let page_mapped = |collection, streams| Layer::PageMapped {
            collection,
            streams,
            isolation: Isolation::Persistent,
        };
        match (name, count) {
            ("page-mapped", count) => {
                let streams = u8::try_from(count.unwrap_or(1)).map_err(|_| LayerError)?;
                Ok(page_mapped(Collection::Greedy, streams))
            }
            ("page-mapped-fifo", None) => Ok(page_mapped(Collection::Fifo, 1)),
            ("fast", count) => Ok(Layer::Fast { log_blocks: count.unwrap_or(LOG_BLOCKS) }),
            ("bast", count) => Ok(Layer::Bast { log_blocks: count.unwrap_or(LOG_BLOCKS) }),
            ("superblock", count) => Ok(Layer::Superblock {
                log_blocks: count.unwrap_or(LOG_BLOCKS),
                width: width.unwrap_or(WIDTH),
            }),
            _ => Err(LayerError),
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::PageMapped { collection: Collection::Fifo, .. } => {
                f.write_str("page-mapped-fifo")
            }
            Layer::PageMapped { streams: 1, .. } => f.write_str("page-mapped"),
            Layer::PageMapped { streams, .. } => write!(f, "page-mapped:{streams}"),
            Layer::Fast { log_blocks } => write!(f, "fast:{log_blocks}"),
            Layer::Bast { log_blocks } => write!(f, "bast:{log_blocks}"),
            Layer::Superblock { log_blocks, width } => write!(f, "superblock:{log_blocks}:{width}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_name_of_a_layer_parses_to_the_same_layer() {
        for name in [
            "page-mapped",
            "page-mapped:4",
            "page-mapped-fifo",
            "fast:16",
            "bast:5",
            "superblock:6:2",
        ] {
            assert_eq!(name.parse::<Layer>().expect(name).to_string(), name);
        }
        assert_eq!("fast".parse(), Ok(Layer::Fast { log_blocks: 8 }));
        assert_eq!("superblock".parse(), Ok(Layer::Superblock { log_blocks: 8, width: 4 }));
        let wrong =
            ["", "fast:", "fast:0", "page-mapped:999", "page-mapped-fifo:2", "dftl", "fast:8:4"];
        for name in wrong.into_iter().chain(["superblock:8:0", "superblock:8:4:2"]) {
            assert_eq!(name.parse::<Layer>(), Err(LayerError), "{name}");
        }
    }
}
