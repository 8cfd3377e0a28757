//! What the two sides agree on before anything else.
//!
//! Owns: the features of the protocol, and choosing among those that the kernel offers.
//! Promises: nothing is agreed on that the kernel does not offer or that was not wished for.
//! Never: serves a request.

use crate::abi::{self, InitExt, InitIn, InitOut};
use crate::arguments::{Arguments, Malformed};

/// Most pages that can be said.
const PAGES_MAX: u32 = u16::MAX as u32;

/// Minor version of the protocol from which on the kernel's `fuse_aio_invalidate_worker` takes old pages
/// out of its cache when an asynchronous direct write is done. No feature stands for it.
const ASYNC_DIO_SAFE_MINOR: u32 = 46;

bitflags::bitflags! {
    /// Features of the protocol, as the kernel numbers them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// Several reads of one file at a time.
        const ASYNC_READ = 1 << 0;
        /// The filesystem keeps locks by fcntl(2).
        const POSIX_LOCKS = 1 << 1;
        /// Opening truncates where open(2) says so.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// "." and ".." can be looked up, for export over NFS.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes longer than a page.
        const BIG_WRITES = 1 << 5;
        /// The filesystem applies the umask.
        const DONT_MASK = 1 << 6;
        /// The filesystem keeps locks by flock(2).
        const FLOCK_LOCKS = 1 << 10;
        /// ioctl(2) of directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Cached data goes when a file's attributes show that it has changed.
        const AUTO_INVAL_DATA = 1 << 12;
        /// Directories are read with attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// ... when it seems to be worth it.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Several direct requests of one call at a time, and asynchronous calls that return at once;
        /// decided by [`crate::Config::async_dio`].
        const ASYNC_DIO = 1 << 15;
        /// The kernel's cache writes back, and keeps sizes and times.
        const WRITEBACK_CACHE = 1 << 16;
        /// ENOSYS to an open means that files need none.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Several operations in one directory at a time.
        const PARALLEL_DIROPS = 1 << 18;
        /// The filesystem clears privileges always.
        const HANDLE_KILLPRIV = 1 << 19;
        /// The filesystem keeps access control lists, and the kernel obeys them.
        const POSIX_ACL = 1 << 20;
        /// An aborted connection is told from an unmounted one.
        const ABORT_ERROR = 1 << 21;
        /// Requests may be longer than 32 pages; implied by [`crate::Config::max_write`].
        const MAX_PAGES = 1 << 22;
        /// The targets of symbolic links are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// ENOSYS to an opendir means that directories need none.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached data goes only when the filesystem says so.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The filesystem clears privileges when the kernel says so.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// A longer form of SETXATTR.
        const SETXATTR_EXT = 1 << 29;
        /// There are flags from bit 32 on; implied by one of them.
        const INIT_EXT = 1 << 30;
        /// Requests that make a file say another group of the user.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Entries may be told to have expired; see [`crate::Notifier::expire_entry`].
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Files that are open past the page cache may be mapped.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// File handles do not outlive the kernel's caches.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// The filesystem may be mounted with other owners than it keeps. The kernel checks permissions
        /// (`default_permissions`), and only requests that make a file say a user.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests come by io_uring; decided by [`crate::Config::rings`].
        const OVER_IO_URING = 1 << 41;
    }
}

/// Bytes in a page of the kernel's, in which it counts how long a request may be.
fn system_page() -> u32 {
    rustix::param::page_size() as u32
}

/// Whether the kernel is asked for [`InitFlags::ASYNC_DIO`].
///
/// An older kernel leaves in its cache what a reader brings there while an asynchronous direct write is
/// under way. A later write of a part of such a page writes the rest of it back, and the direct write is
/// lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsyncDio {
    /// If no data is lost with it.
    #[default]
    WhereSafe,
    /// Of every kernel.
    Always,
    /// Of no kernel.
    Never,
}

impl AsyncDio {
    /// Whether a kernel is asked for it whose protocol has minor version `minor`.
    pub fn is_asked_of(self, minor: u32) -> bool {
        match self {
            Self::WhereSafe => minor >= ASYNC_DIO_SAFE_MINOR,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// What a filesystem wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Features. An older kernel goes without what it does not know.
    pub flags: InitFlags,
    /// Whether direct requests may be asynchronous.
    pub async_dio: AsyncDio,
    /// Bytes in a write, at most; the kernel may want less.
    pub max_write: u32,
    /// Requests that the kernel sends without that anybody waits for them.
    pub max_background: u16,
    /// So many of them make it hold back.
    pub congestion_threshold: u16,
    /// The smallest difference between two times, in nanoseconds.
    pub time_granularity: u32,
    /// Threads that serve, at least one.
    pub threads: usize,
    /// Whether requests may come by io_uring: what [`crate::Session::rings`] says of it.
    pub rings: bool,
}

impl Default for Config {
    /// As little as the kernel allows.
    fn default() -> Self {
        Self {
            flags: InitFlags::BIG_WRITES,
            async_dio: AsyncDio::Never,
            max_write: 128 << 10,
            max_background: 12,
            congestion_threshold: 9,
            time_granularity: 1,
            threads: 1,
            rings: false,
        }
    }
}

/// What both sides do from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The protocol's minor version, the smaller of the two.
    pub minor: u32,
    /// Features.
    pub flags: InitFlags,
    /// Bytes in a write, at most.
    pub max_write: u32,
}

/// What the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: InitFlags,
}

impl Offer {
    /// Out of an INIT. A later kernel may say more than is known here.
    pub(crate) fn decode(mut arguments: Arguments<'_>) -> Result<Self, Malformed> {
        let InitIn { major, minor, max_readahead, flags } = arguments.fixed()?;
        let mut bits = u64::from(flags);
        if bits & InitFlags::INIT_EXT.bits() != 0 {
            let InitExt { flags2, .. } = arguments.fixed()?;
            bits |= u64::from(flags2) << 32;
        }
        Ok(Self { major, minor, max_readahead, flags: InitFlags::from_bits_truncate(bits) })
    }

    /// What is agreed on, given a filesystem's wishes; but for io_uring, which takes more than that.
    pub(crate) fn agree(&self, config: &Config) -> Agreed {
        let page = system_page();
        let mut wished = (config.flags - InitFlags::OVER_IO_URING) | InitFlags::MAX_PAGES;
        wished.set(InitFlags::INIT_EXT, wished.bits() >> 32 != 0);
        wished.set(InitFlags::ASYNC_DIO, config.async_dio.is_asked_of(self.minor));
        Agreed {
            minor: self.minor.min(abi::MINOR),
            flags: wished & self.flags,
            max_write: page * (config.max_write / page).clamp(1, PAGES_MAX),
        }
    }

    /// The answer to the kernel.
    pub(crate) fn answer(&self, agreed: &Agreed, config: &Config) -> InitOut {
        let bits = agreed.flags.bits();
        InitOut {
            major: abi::MAJOR,
            minor: agreed.minor,
            max_readahead: self.max_readahead,
            flags: bits as u32,
            flags2: (bits >> 32) as u32,
            max_background: config.max_background,
            congestion_threshold: config.congestion_threshold,
            max_write: agreed.max_write,
            time_gran: config.time_granularity,
            max_pages: (agreed.max_write / system_page()) as u16,
            ..InitOut::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(flags: InitFlags) -> Offer {
        Offer { major: 7, minor: 45, max_readahead: 1 << 17, flags }
    }

    #[test]
    fn what_one_side_does_not_know_is_not_agreed_on() {
        let offer = offer(InitFlags::ASYNC_READ | InitFlags::MAX_PAGES | InitFlags::INIT_EXT);
        let flags = InitFlags::ASYNC_READ | InitFlags::ATOMIC_O_TRUNC | InitFlags::HAS_EXPIRE_ONLY;
        let agreed = offer.agree(&Config { flags, ..Config::default() });
        let both = InitFlags::ASYNC_READ | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
        assert_eq!(agreed.flags, both);
    }

    #[test]
    fn direct_requests_are_asynchronous_where_the_kernel_loses_no_data() {
        let agreed = |minor, async_dio| {
            let offer = Offer { minor, ..offer(InitFlags::all()) };
            // The flag alone asks for nothing.
            let config = Config { flags: InitFlags::ASYNC_DIO, async_dio, ..Config::default() };
            offer.agree(&config).flags.contains(InitFlags::ASYNC_DIO)
        };
        for (minor, is_safe) in [(31, false), (45, false), (46, true), (47, true)] {
            assert_eq!(agreed(minor, AsyncDio::WhereSafe), is_safe, "7.{minor}");
            assert!(agreed(minor, AsyncDio::Always));
            assert!(!agreed(minor, AsyncDio::Never));
        }
        let without = Offer { minor: 46, ..offer(InitFlags::all() - InitFlags::ASYNC_DIO) };
        let config = Config { async_dio: AsyncDio::Always, ..Config::default() };
        assert!(!without.agree(&config).flags.contains(InitFlags::ASYNC_DIO));
    }

    #[test]
    fn the_upper_half_of_the_flags_needs_a_flag() {
        let all = offer(InitFlags::all());
        let config = Config { flags: InitFlags::HAS_EXPIRE_ONLY, ..Config::default() };
        let out = all.answer(&all.agree(&config), &config);
        assert_eq!(out.flags2, 1 << 3);
        assert_eq!(u64::from(out.flags), (InitFlags::INIT_EXT | InitFlags::MAX_PAGES).bits());
        let config = Config::default();
        assert_eq!(all.answer(&all.agree(&config), &config).flags2, 0);
    }

    #[test]
    fn writes_are_whole_pages_that_can_be_counted() {
        let page = system_page();
        let wishes =
            [(0, 1), (page, 1), (2 * page - 1, 1), (256 * page, 256), (u32::MAX, u16::MAX)];
        for (wish, pages) in wishes {
            let config = Config { max_write: wish, ..Config::default() };
            let all = offer(InitFlags::all());
            let out = all.answer(&all.agree(&config), &config);
            assert_eq!((out.max_pages, out.max_write), (pages, u32::from(pages) * page));
        }
    }
}
