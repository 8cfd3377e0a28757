//! Names of translation layers on the command line.
//!
//! The names are `page-mapped[:STREAMS]`, `page-mapped-fifo`, `fast[:LOG_BLOCKS]` and `bast[:LOG_BLOCKS]`.
//! The printed name of a layer parses to the same layer, except that a name does not contain
//! [`Isolation`]: a parsed page-mapped layer has [`Isolation::Persistent`].

use std::fmt;
use std::str::FromStr;

use super::layer::{Collection, Isolation, Layer};

/// Default number of log blocks.
const LOG_BLOCKS: u32 = 8;

/// Error of parsing a text that names no translation layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use page-mapped[:STREAMS], page-mapped-fifo, fast[:LOG_BLOCKS] or bast[:LOG_BLOCKS]")]
pub struct LayerError;

impl FromStr for Layer {
    type Err = LayerError;

    fn from_str(text: &str) -> Result<Layer, LayerError> {
        let (name, count) = match text.split_once(':') {
            Some((name, count)) => (name, Some(count.parse::<u32>().map_err(|_| LayerError)?)),
            None => (text, None),
        };
        let page_mapped = |collection, streams| Layer::PageMapped {
            collection,
            streams,
            isolation: Isolation::Persistent,
        };
        match (name, count) {
            (_, Some(0)) => Err(LayerError),
            ("page-mapped", count) => {
                let streams = u8::try_from(count.unwrap_or(1)).map_err(|_| LayerError)?;
                Ok(page_mapped(Collection::Greedy, streams))
            }
            ("page-mapped-fifo", None) => Ok(page_mapped(Collection::Fifo, 1)),
            ("fast", count) => Ok(Layer::Fast { log_blocks: count.unwrap_or(LOG_BLOCKS) }),
            ("bast", count) => Ok(Layer::Bast { log_blocks: count.unwrap_or(LOG_BLOCKS) }),
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_name_of_a_layer_parses_to_the_same_layer() {
        for name in ["page-mapped", "page-mapped:4", "page-mapped-fifo", "fast:16", "bast:5"] {
            assert_eq!(name.parse::<Layer>().expect(name).to_string(), name);
        }
        assert_eq!("fast".parse(), Ok(Layer::Fast { log_blocks: 8 }));
        for name in ["", "fast:", "fast:0", "page-mapped:999", "page-mapped-fifo:2", "dftl"] {
            assert_eq!(name.parse::<Layer>(), Err(LayerError), "{name}");
        }
    }
}
