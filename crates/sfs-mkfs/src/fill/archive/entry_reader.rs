//! The entries of a tar archive: ustar, GNU (long names, sparse files) and pax (extended attributes, sparse files).
//!
//! The fields of a header are those of the crate `tar`. Everything that has a length is bounded before it is read to
//! memory.

use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use super::pax::PaxRecords;
use crate::fill::FillReason;
use crate::fill::directory::fill_buffer;
use crate::fill::tree_writer::SourceAttributes;

/// Unit of an archive in bytes.
const UNIT: u64 = 512;

/// Longest name, link target, or pax header: hundreds of extended attributes of 64 KiB fit.
const EXTENSION_LEN_MAX: u64 = 32 << 20;

/// Maximum number of extents of a sparse file.
const EXTENTS_MAX: usize = 1 << 20;

/// Beginnings of compressed files, and the names of their programs.
const COMPRESSED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];

/// An entry that is a file.
pub(super) struct Entry {
    /// Name as the archive has it.
    pub(super) name: Vec<u8>,
    pub(super) kind: EntryKind,
    pub(super) attributes: SourceAttributes,
}

/// Kind of a file with what belongs to it.
#[derive(PartialEq, Eq)]
pub(super) enum EntryKind {
    Directory,
    /// Regular file of `size` bytes, of which the archive has `extents`: offset and length, ascending.
    Regular {
        size: u64,
        extents: Vec<(u64, u64)>,
    },
    Symlink(Vec<u8>),
    /// Another name of an earlier file.
    Link(Vec<u8>),
    /// Device or pipe, by its type bits.
    Node {
        kind: u32,
        rdev: u32,
    },
}

/// Reader of an archive.
pub(super) struct EntryReader<R> {
    source: io::Take<R>,
    /// Bytes after the content of the entry, up to a whole unit.
    padding: u64,
    /// Records for all following entries.
    global: PaxRecords,
    is_first: bool,
    /// Name of the present entry, once it is known.
    name: Vec<u8>,
}

/// Statements about an entry in the headers before it.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: PaxRecords,
}

impl<R: Read> EntryReader<R> {
    pub(super) fn new(source: R) -> Self {
        let global = PaxRecords::default();
        Self { source: source.take(0), padding: 0, global, is_first: true, name: Vec::new() }
    }

    /// Returns the rest of the present entry's content.
    pub(super) fn content(&mut self) -> &mut impl Read {
        &mut self.source
    }

    /// Returns the name of the present entry; an empty one before it is known.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Skips the rest of the present entry, and returns the next one; `None` at the end of the archive.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, FillReason> {
        let mut extensions = Extensions { pax: self.global.clone(), ..Extensions::default() };
        self.name.clear();
        while let Some(header) = self.header()? {
            let size = header.entry_size().map_err(|_| FillReason::Number("size"))?;
            match header.entry_type() {
                EntryType::GNULongName => extensions.name = Some(self.text(size)?),
                EntryType::GNULongLink => extensions.link = Some(self.text(size)?),
                EntryType::XHeader => {
                    let bytes = self.bytes(size)?;
                    extensions.pax.add(&bytes)?;
                }
                EntryType::XGlobalHeader => {
                    let bytes = self.bytes(size)?;
                    self.global.add(&bytes)?;
                    extensions.pax.add(&bytes)?;
                }
                kind => return self.entry(&header, kind, size, extensions).map(Some),
            }
        }
        Ok(None)
    }

    /// Makes the entry of a header that describes a file.
    fn entry(
        &mut self,
        header: &Header,
        kind: EntryType,
        size: u64,
        extensions: Extensions,
    ) -> Result<Entry, FillReason> {
        let Extensions { name, link, pax } = extensions;
        let size = pax.number("size")?.unwrap_or(size);
        let name = match pax.get("GNU.sparse.name").or(pax.get("path")) {
            Some(name) => name.to_vec(),
            None => name.unwrap_or_else(|| header.path_bytes().into_owned()),
        };
        self.name.clone_from(&name);
        let link = || {
            let of_header = || header.link_name_bytes().map_or_else(Vec::new, |name| name.into());
            pax.get("linkpath").map(<[u8]>::to_vec).or(link).unwrap_or_else(of_header)
        };
        let is_directory = name.ends_with(b"/");
        let attributes = attributes(header, &pax)?;
        let has_content = kind.is_gnu_sparse() || is_regular(kind) && !is_directory;
        self.begin(if has_content { size } else { 0 })?;
        let kind = match kind {
            EntryType::GNUSparse => self.gnu_sparse(header, size)?,
            _ if has_content && pax.has_prefix("GNU.sparse.") => self.pax_sparse(&pax, size)?,
            _ if has_content => EntryKind::Regular { size, extents: vec![(0, size)] },
            kind if is_regular(kind) || kind.is_dir() => EntryKind::Directory,
            EntryType::Symlink => EntryKind::Symlink(link()),
            EntryType::Link => EntryKind::Link(link()),
            EntryType::Fifo => EntryKind::Node { kind: 0o010_000, rdev: 0 },
            EntryType::Char => EntryKind::Node { kind: 0o020_000, rdev: rdev(header)? },
            EntryType::Block => EntryKind::Node { kind: 0o060_000, rdev: rdev(header)? },
            other => return Err(FillReason::Kind(char::from(other.as_byte()))),
        };
        Ok(Entry { name, kind, attributes })
    }

    /// Reads the next header; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>, FillReason> {
        let rest = self.source.limit() + self.padding;
        self.source.set_limit(rest);
        if io::copy(&mut self.source, &mut io::sink())? < rest {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.padding = 0;
        let mut header = Header::new_old();
        self.source.set_limit(UNIT);
        let read = fill_buffer(&mut self.source, header.as_mut_bytes())?;
        let is_first = std::mem::take(&mut self.is_first);
        let begins = |(magic, _): &&(&[u8], &str)| header.as_bytes().starts_with(magic);
        if let Some((_, program)) = COMPRESSED.iter().find(begins).filter(|_| is_first) {
            return Err(FillReason::Compressed(program));
        }
        // An archive ends with a unit of zeros. The end of the file instead is a cut-off archive, as far as one can
        // know.
        if (read as u64) < UNIT {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let bytes = header.as_bytes();
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let stated = header.cksum().map_err(|_| FillReason::Number("checksum of a header"))?;
        let counted: u32 = (0..)
            .zip(bytes)
            .map(|(at, byte)| match at {
                148..156 => u32::from(b' '),
                _ => u32::from(*byte),
            })
            .sum();
        if stated != counted {
            return Err(FillReason::Number("checksum of a header"));
        }
        Ok(Some(header))
    }

    /// Begins content of `size` bytes.
    fn begin(&mut self, size: u64) -> Result<(), FillReason> {
        let whole = size.checked_next_multiple_of(UNIT).ok_or(FillReason::Number("size"))?;
        self.source.set_limit(size);
        self.padding = whole - size;
        Ok(())
    }

    /// Reads the content of an extension header.
    fn bytes(&mut self, size: u64) -> Result<Vec<u8>, FillReason> {
        if size > EXTENSION_LEN_MAX {
            return Err(FillReason::Number("size of a header"));
        }
        self.begin(size)?;
        let mut bytes = Vec::new();
        self.source.read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < size {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(bytes)
    }

    /// Reads a name that ends with a zero.
    fn text(&mut self, size: u64) -> Result<Vec<u8>, FillReason> {
        let mut bytes = self.bytes(size)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len()));
        Ok(bytes)
    }

    /// Reads the map of a sparse file in GNU's old form, whose headers follow the first one.
    fn gnu_sparse(&mut self, header: &Header, stored: u64) -> Result<EntryKind, FillReason> {
        let wrong = |_| FillReason::Number("map of a sparse file");
        let gnu = header.as_gnu().ok_or(FillReason::Sparse)?;
        let size = gnu.real_size().map_err(wrong)?;
        let mut extents = Vec::new();
        let mut add = |headers: &[GnuSparseHeader]| {
            for header in headers.iter().filter(|header| !header.is_empty()) {
                let extent = (header.offset().map_err(wrong)?, header.length().map_err(wrong)?);
                extents.push(extent);
            }
            Ok::<_, FillReason>(extents.len() <= EXTENTS_MAX)
        };
        add(&gnu.sparse)?;
        let mut is_extended = gnu.is_extended();
        while is_extended {
            let mut more = GnuExtSparseHeader::new();
            self.source.set_limit(UNIT);
            self.source.read_exact(more.as_mut_bytes())?;
            if !add(&more.sparse)? {
                return Err(FillReason::Number("map of a sparse file"));
            }
            is_extended = more.is_extended();
        }
        self.begin(stored)?;
        checked_sparse(size, extents, stored)
    }

    /// Reads the map of a sparse file in pax form 1.0: decimal numbers at the beginning of the content.
    fn pax_sparse(&mut self, pax: &PaxRecords, stored: u64) -> Result<EntryKind, FillReason> {
        let form = (pax.get("GNU.sparse.major"), pax.get("GNU.sparse.minor"));
        if form != (Some(b"1"), Some(b"0")) {
            return Err(FillReason::Sparse);
        }
        let size = pax.number("GNU.sparse.realsize")?.ok_or(FillReason::Sparse)?;
        let before = self.source.limit();
        let count = self.decimal()?;
        if count > EXTENTS_MAX as u64 {
            return Err(FillReason::Number("map of a sparse file"));
        }
        let mut extents = Vec::new();
        for _ in 0..count {
            extents.push((self.decimal()?, self.decimal()?));
        }
        let rest =
            (before - self.source.limit()).next_multiple_of(UNIT) - (before - self.source.limit());
        io::copy(&mut (&mut self.source).take(rest), &mut io::sink())?;
        let left = self.source.limit();
        debug_assert!(left <= stored);
        checked_sparse(size, extents, left)
    }

    /// Reads a decimal number that ends with a line break.
    fn decimal(&mut self) -> Result<u64, FillReason> {
        let mut number: u64 = 0;
        loop {
            let mut byte = [0];
            self.source.read_exact(&mut byte)?;
            let digit = match byte[0] {
                b'\n' => return Ok(number),
                digit @ b'0'..=b'9' => u64::from(digit - b'0'),
                _ => return Err(FillReason::Sparse),
            };
            let next = number.checked_mul(10).and_then(|number| number.checked_add(digit));
            number = next.ok_or(FillReason::Number("map of a sparse file"))?;
        }
    }
}

/// Checks that the extents ascend within `size`, and that the archive has `stored` bytes for them.
fn checked_sparse(
    size: u64,
    extents: Vec<(u64, u64)>,
    stored: u64,
) -> Result<EntryKind, FillReason> {
    let (mut end, mut sum) = (0u64, 0u64);
    for (offset, len) in &extents {
        let next = offset.checked_add(*len).filter(|next| *offset >= end && *next <= size);
        end = next.ok_or(FillReason::Number("map of a sparse file"))?;
        sum += len;
    }
    match sum == stored {
        true => Ok(EntryKind::Regular { size, extents }),
        false => Err(FillReason::Number("map of a sparse file")),
    }
}

fn is_regular(kind: EntryType) -> bool {
    kind.is_file() || kind.is_contiguous()
}

fn attributes(header: &Header, pax: &PaxRecords) -> Result<SourceAttributes, FillReason> {
    let id = |key, of_header: io::Result<u64>| {
        let wrong = || FillReason::Number(key);
        let id = match pax.number(key)? {
            Some(id) => id,
            None => of_header.map_err(|_| wrong())?,
        };
        u32::try_from(id).map_err(|_| wrong())
    };
    let mtime = match pax.time("mtime")? {
        Some(mtime) => mtime,
        None => {
            let secs = header.mtime().map_err(|_| FillReason::Number("mtime"))?;
            // Base-256 numbers are signed.
            sfs_core::format::Timestamp { secs: secs as i64, nanos: 0 }
        }
    };
    let mode = header.mode().map_err(|_| FillReason::Number("mode"))?;
    Ok(SourceAttributes {
        permissions: mode & 0o7777,
        uid: id("uid", header.uid())?,
        gid: id("gid", header.gid())?,
        mtime,
        xattrs: pax.xattrs(),
    })
}

/// Returns the number of a device, as the kernel encodes it in 32 bits.
fn rdev(header: &Header) -> Result<u32, FillReason> {
    let wrong = || FillReason::Number("device number");
    let major = header.device_major().ok().flatten().filter(|major| *major < 1 << 12);
    let minor = header.device_minor().ok().flatten().filter(|minor| *minor < 1 << 20);
    let (major, minor) = (major.ok_or_else(wrong)?, minor.ok_or_else(wrong)?);
    Ok(minor & 0xff | major << 8 | (minor & !0xff) << 12)
}
