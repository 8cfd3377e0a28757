//! The text of a trace file, plain or compressed by zstd.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result};

/// First bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Returns the text of the file at `path`.
///
/// # Errors
///
/// If the file cannot be read or decompressed, or is not UTF-8; the error names the file.
pub(crate) fn read(path: &Path) -> Result<String> {
    let name = || path.display().to_string();
    let mut file = BufReader::new(File::open(path).with_context(name)?);
    let is_zstd = file.fill_buf().with_context(name)?.starts_with(&ZSTD_MAGIC);
    let mut text = String::new();
    if is_zstd {
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(file).with_context(name)?;
        decoder.read_to_string(&mut text).with_context(name)?;
    } else {
        file.read_to_string(&mut text).with_context(name)?;
    }
    Ok(text)
}
