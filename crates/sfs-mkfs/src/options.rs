//! The command line of `sfs-mkfs`.
//!
//! Values that parse are in range, except where the range depends on the device.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sfs_cache::PolicyName;
use sfs_core::format::{DataLayout, Label};
use sfs_system::parse_size;
use uuid::Uuid;

use crate::SectionSize;

/// Makes an SFS volume on a block device or in an image file.
#[derive(Clone, Debug, Parser)]
#[command(name = "sfs-mkfs", version, disable_version_flag = true)]
pub struct MkfsOptions {
    /// Name of the volume, at most 64 bytes
    #[arg(short = 'L', long, value_parser = parse_label, default_value = "", hide_default_value = true)]
    pub label: Label,

    /// UUID of the volume, instead of a random one. The whole device is read, and remains of a volume with
    /// this UUID are erased
    #[arg(short = 'U', long)]
    pub uuid: Option<Uuid>,

    /// Overwrite the content of the device
    #[arg(short, long)]
    pub force: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// Check everything, print the volume that would be made, and write nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// First write samples over the whole device and read them back, to find fake capacity and
    /// dropped writes
    #[arg(long, conflicts_with = "dry_run")]
    pub probe: bool,

    /// Do not discard the device's blocks first
    #[arg(short = 'K', long)]
    pub keep_blocks: bool,

    /// Size of a segment, a power of two from 128K to 1G; auto: the size that the device reports,
    /// or a measured size on flash that reports none; measure: a measured size on any device, which
    /// takes about a minute [default: auto]
    #[arg(long, value_name = "SIZE", default_value = "auto", hide_default_value = true, value_parser = parse_segment_size)]
    pub segment_size: SegmentSize,
    /// Longest time of a measurement, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub measure_time: u64,

    /// Data layout, fixed for the life of the volume. log: data is appended, never overwritten; the
    /// others overwrite data in place, without checksums, and put new blocks into the emptiest
    /// segment (greedy-space), the next segment below a utilization threshold of the FAST 2009
    /// paper, from its table or its formula (clock-space, clock-space-exact), or near their inode
    /// (block-group) [default: log]
    #[arg(long = "layout", alias = "placement", value_name = "LAYOUT", default_value = "log", hide_default_value = true, hide_possible_values = true, value_parser = PossibleValuesParser::new(DataLayout::ALL.map(DataLayout::name)).map(|name| data_layout(&name)))]
    pub data_layout: DataLayout,

    /// Size of the volume: 512M, 4G. Makes an image file of this size if there is none; may be smaller than an existing
    /// device
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,

    /// Fill the volume with the content of a directory, or of a tar archive that is not compressed: owners, modes, times of
    /// change, extended attributes, hard links, symbolic links, devices and pipes. Blocks of zeros become holes. Names
    /// in an archive are below the root of the volume; '..' in a name is refused
    #[arg(long, value_name = "DIR|TAR", conflicts_with_all = ["probe", "dry_run"])]
    pub from: Option<PathBuf>,

    /// Take the UUID and the secret key of the hash of names from this text: with the same options and the same content
    /// of --from, the volume has the same bytes. Its time of creation is $SOURCE_DATE_EPOCH, or 0, and no file has a
    /// later time than $SOURCE_DATE_EPOCH. Others who know the text can choose names that make directories slow; the
    /// volume says so in 'sfs-ctl stat'. Only with --layout log
    #[arg(long, value_name = "TEXT")]
    pub seed: Option<String>,

    /// Make an image file that is as small as the content of --from allows, with --size as upper limit. The content is
    /// written at least twice
    #[arg(long, requires = "from")]
    pub fit: bool,

    /// Use this SSD as a cache before the device, a hard drive: what is read often is read at the speed of the SSD, every write
    /// goes to the hard drive, and the SSD may die at any time without a loss. Only with --layout log. For a volume in an
    /// object store: the local cache, a file that is made if it is missing, or a device
    #[arg(long, value_name = "SSD", conflicts_with_all = ["seed", "dry_run"])]
    pub cache: Option<PathBuf>,

    /// Encrypt the objects of a volume in an object store with the key in this file, which has 32 bytes or 64 hexadecimal digits, and which
    /// others may not read. Several volumes may have one key file
    #[arg(long, value_name = "FILE", requires = "cache")]
    pub key_file: Option<PathBuf>,

    /// Like --key-file, with a new key: the file is made. Nobody can read the volume without it, so keep a copy elsewhere
    #[arg(long, value_name = "FILE", requires = "cache", conflicts_with = "key_file")]
    pub new_key_file: Option<PathBuf>,

    /// Section of the cache, as size and extent: 8G:16K; rest:EXTENT takes what is left. A range of a file goes to the section
    /// that takes the fewest extents for it. May be given several times [default: one section, with extents of 16K up to 16 GiB
    /// and of up to 256K on a larger SSD]
    #[arg(long = "section", value_name = "SIZE:EXTENT", requires = "cache")]
    pub sections: Vec<SectionSize>,

    /// Which extents leave the cache when it is full: s3-fifo, multilevel (the one of the N-hybrid paper), lru, arc
    #[arg(long, value_name = "POLICY", requires = "cache", default_value = "s3-fifo", hide_possible_values = true, value_parser = PossibleValuesParser::new(PolicyName::ALL.map(PolicyName::name)).map(|name| PolicyName::by_name(&name).expect("clap has checked the name")))]
    pub cache_policy: PolicyName,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    /// Block device or image file, or the URL of an object store: file:///DIR, s3://BUCKET/PREFIX, az://CONTAINER/PREFIX,
    /// gs://BUCKET/PREFIX
    pub device: PathBuf,
}

/// Choice of the segment size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentSize {
    /// Size that the device reports, or a measured one on flash that reports none.
    Auto,
    /// Measured size, regardless of the kind and the report of the device.
    Measure,
    /// Fixed size, in bytes.
    Bytes(u64),
}

fn data_layout(name: &str) -> DataLayout {
    DataLayout::by_name(name).expect("clap has checked the name")
}

fn parse_label(text: &str) -> Result<Label, &'static str> {
    Label::new(text).ok_or("a label has at most 64 bytes and no control characters")
}

fn parse_segment_size(text: &str) -> Result<SegmentSize, sfs_system::SizeError> {
    match text {
        "auto" => Ok(SegmentSize::Auto),
        "measure" => Ok(SegmentSize::Measure),
        _ => parse_size(text).map(SegmentSize::Bytes),
    }
}

impl SegmentSize {
    /// Returns the size in bytes if it is fixed.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Auto | Self::Measure => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}
