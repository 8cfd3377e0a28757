//! Features of the protocol, and the choice among the features that the kernel offers in INIT.
//!
//! [`Offer::agree`] chooses the features that the kernel offers and the configuration wants, and
//! [`Offer::answer`] encodes the choice. The session decides on io_uring, which needs rings first.

use crate::protocol::abi::{self, InitExt, InitIn, InitOut};
use crate::protocol::argument_reader::{ArgumentReader, Malformed};

/// Largest number of pages that the reply to INIT can state.
const PAGES_MAX: u32 = u16::MAX as u32;

/// Minor version of the protocol since which the kernel's `fuse_aio_invalidate_worker` drops stale pages from its
/// cache after an asynchronous direct write. No feature flag shows this change.
const ASYNC_DIO_SAFE_MINOR: u32 = 46;

bitflags::bitflags! {
    /// Features of the protocol, as the kernel numbers them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// Allows several reads of one file at a time.
        const ASYNC_READ = 1 << 0;
        /// The filesystem implements locks of fcntl(2).
        const POSIX_LOCKS = 1 << 1;
        /// The filesystem truncates a file at an open with O_TRUNC.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// "." and ".." can be looked up, for export over NFS.
        const EXPORT_SUPPORT = 1 << 4;
        /// Allows writes longer than a page.
        const BIG_WRITES = 1 << 5;
        /// The filesystem applies the umask.
        const DONT_MASK = 1 << 6;
        /// The filesystem implements locks of flock(2).
        const FLOCK_LOCKS = 1 << 10;
        /// Allows ioctl(2) on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// The kernel drops cached data when a file's attributes show that it has changed.
        const AUTO_INVAL_DATA = 1 << 12;
        /// Directories are read with attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// Directories are read with attributes when the kernel expects a use for them.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Allows several direct requests of one call at a time, and asynchronous calls that return at once.
        /// Decided by [`crate::SessionConfig::async_dio`].
        const ASYNC_DIO = 1 << 15;
        /// The kernel's cache writes data back, and maintains sizes and times.
        const WRITEBACK_CACHE = 1 << 16;
        /// ENOSYS for OPEN means that files are not opened.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Allows several operations in one directory at a time.
        const PARALLEL_DIROPS = 1 << 18;
        /// The filesystem always clears privileges.
        const HANDLE_KILLPRIV = 1 << 19;
        /// The filesystem stores access control lists, and the kernel enforces them. Only agreed on together with
        /// [`InitFlags::DONT_MASK`], as default lists take the place of the umask, and [`InitFlags::SETXATTR_EXT`],
        /// which tells whether a new list clears sgid.
        const POSIX_ACL = 1 << 20;
        /// Reading after an abort fails with ECONNABORTED, after an unmount with ENODEV.
        const ABORT_ERROR = 1 << 21;
        /// Allows requests longer than 32 pages. Implied by [`crate::SessionConfig::max_write`].
        const MAX_PAGES = 1 << 22;
        /// The kernel caches the targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// ENOSYS for OPENDIR means that directories are not opened.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// The kernel drops cached data only at a notification of the filesystem.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The filesystem clears privileges at a request of the kernel.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has its longer form.
        const SETXATTR_EXT = 1 << 29;
        /// INIT has flags from bit 32 on. Implied by any of them.
        const INIT_EXT = 1 << 30;
        /// Requests that make a file include another group of the user.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// The filesystem can expire entries; see [`crate::Notifier::expire_entry`].
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Files that are open for direct I/O can be mapped.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// File handles do not outlive the kernel's caches.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// The filesystem can be mounted with mapped owners (idmapped mounts). The kernel then checks permissions
        /// (`default_permissions`), and only requests that make a file state a user.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests come through io_uring. Decided by [`crate::SessionConfig::rings`].
        const OVER_IO_URING = 1 << 41;
    }
}

/// Bytes in a page of the kernel, its unit for the length of requests.
fn system_page() -> u32 {
    rustix::param::page_size() as u32
}

/// Condition for asking the kernel for [`InitFlags::ASYNC_DIO`].
///
/// An older kernel keeps in its cache the pages that a reader brings there while an asynchronous direct write is
/// under way. A later write to a part of such a page writes back its stale rest, and the direct write is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsyncDio {
    /// Asks only kernels that lose no data with asynchronous direct requests.
    #[default]
    WhereSafe,
    /// Asks every kernel.
    Always,
    /// Asks no kernel.
    Never,
}

impl AsyncDio {
    /// Returns whether a kernel whose protocol has minor version `minor` is asked for the feature.
    pub fn is_asked_of(self, minor: u32) -> bool {
        match self {
            Self::WhereSafe => minor >= ASYNC_DIO_SAFE_MINOR,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// Protocol that a filesystem wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Wanted features. A kernel that does not offer one of these features works without the
    /// feature.
    pub flags: InitFlags,
    /// Condition for asynchronous direct requests.
    pub async_dio: AsyncDio,
    /// Largest write, in bytes; the kernel may have a smaller limit.
    pub max_write: u32,
    /// Largest number of background requests (read-ahead, write-back) that wait for replies at a
    /// time.
    pub max_background: u16,
    /// Number of background requests from which the kernel considers the filesystem congested.
    pub congestion_threshold: u16,
    /// Smallest difference between two times, in nanoseconds.
    pub time_granularity: u32,
    /// Number of threads that serve; 0 counts as 1.
    pub threads: usize,
    /// `true` if requests should come through io_uring where the kernel offers it;
    /// [`crate::FuseSession::rings`] returns the outcome.
    pub rings: bool,
    /// With rings, replaces `max_background` and `congestion_threshold`.
    pub background_of_rings: Option<(u16, u16)>,
    /// Number of bytes of parked requests from which serving threads wait with the next write: the last thread from four times as
    /// many.
    pub parked_bytes_max: usize,
    /// `true` if another process goes on with the channels when this one is killed: memory for requests is occupied at once.
    pub outlives_process: bool,
    /// `true` to treat a kernel that sends requests again as one that does not, for tests.
    pub never_sent_again: bool,
}

impl Default for SessionConfig {
    /// Returns the smallest configuration that the kernel accepts.
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
            background_of_rings: None,
            parked_bytes_max: 16 << 20,
            outlives_process: false,
            never_sent_again: false,
        }
    }
}

/// Protocol that both sides use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Minor version of the protocol, the smaller of both.
    pub minor: u32,
    /// Features.
    pub flags: InitFlags,
    /// Largest write, in bytes.
    pub max_write: u32,
}

/// Protocol that the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: InitFlags,
}

impl Offer {
    /// Decodes an INIT. A later kernel may append fields that are unknown here.
    pub(crate) fn decode(mut arguments: ArgumentReader<'_>) -> Result<Self, Malformed> {
        let InitIn { major, minor, max_readahead, flags } = arguments.fixed()?;
        let mut bits = u64::from(flags);
        if bits & InitFlags::INIT_EXT.bits() != 0 {
            let InitExt { flags2, .. } = arguments.fixed()?;
            bits |= u64::from(flags2) << 32;
        }
        Ok(Self { major, minor, max_readahead, flags: InitFlags::from_bits_truncate(bits) })
    }

    /// Chooses the offered features that `config` wants, except for io_uring.
    pub(crate) fn agree(&self, config: &SessionConfig) -> Agreed {
        let page = system_page();
        let mut wished = (config.flags - InitFlags::OVER_IO_URING) | InitFlags::MAX_PAGES;
        wished.set(InitFlags::INIT_EXT, wished.bits() >> 32 != 0);
        wished.set(InitFlags::ASYNC_DIO, config.async_dio.is_asked_of(self.minor));
        let mut flags = wished & self.flags;
        if !flags.contains(InitFlags::DONT_MASK | InitFlags::SETXATTR_EXT) {
            flags.remove(InitFlags::POSIX_ACL);
        }
        Agreed {
            minor: self.minor.min(abi::MINOR),
            flags,
            max_write: page * (config.max_write / page).clamp(1, PAGES_MAX),
        }
    }

    /// Encodes the reply to INIT.
    pub(crate) fn answer(&self, agreed: &Agreed, config: &SessionConfig) -> InitOut {
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
    fn a_feature_that_one_side_lacks_is_not_agreed_on() {
        let offer = offer(InitFlags::ASYNC_READ | InitFlags::MAX_PAGES | InitFlags::INIT_EXT);
        let flags = InitFlags::ASYNC_READ | InitFlags::ATOMIC_O_TRUNC | InitFlags::HAS_EXPIRE_ONLY;
        let agreed = offer.agree(&SessionConfig { flags, ..SessionConfig::default() });
        let both = InitFlags::ASYNC_READ | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
        assert_eq!(agreed.flags, both);
    }

    #[test]
    fn asynchronous_direct_requests_need_a_kernel_that_loses_no_data() {
        let agreed = |minor, async_dio| {
            let offer = Offer { minor, ..offer(InitFlags::all()) };
            // The flag alone does not request the feature.
            let config = SessionConfig {
                flags: InitFlags::ASYNC_DIO,
                async_dio,
                ..SessionConfig::default()
            };
            offer.agree(&config).flags.contains(InitFlags::ASYNC_DIO)
        };
        for (minor, is_safe) in [(31, false), (45, false), (46, true), (47, true)] {
            assert_eq!(agreed(minor, AsyncDio::WhereSafe), is_safe, "7.{minor}");
            assert!(agreed(minor, AsyncDio::Always));
            assert!(!agreed(minor, AsyncDio::Never));
        }
        let without = Offer { minor: 46, ..offer(InitFlags::all() - InitFlags::ASYNC_DIO) };
        let config = SessionConfig { async_dio: AsyncDio::Always, ..SessionConfig::default() };
        assert!(!without.agree(&config).flags.contains(InitFlags::ASYNC_DIO));
    }

    #[test]
    fn access_lists_need_the_umask_and_the_long_setxattr() {
        let needed = [InitFlags::DONT_MASK, InitFlags::SETXATTR_EXT];
        let all = needed.into_iter().fold(InitFlags::POSIX_ACL, |flags, one| flags | one);
        let agreed = |offered, wished| {
            let config = SessionConfig { flags: wished, ..SessionConfig::default() };
            offer(offered).agree(&config).flags
        };
        assert_eq!(agreed(all, all), all);
        for one in needed {
            assert_eq!(agreed(all - one, all), all - one - InitFlags::POSIX_ACL);
            assert_eq!(agreed(all, all - one), all - one - InitFlags::POSIX_ACL);
        }
    }

    #[test]
    fn flags_of_the_upper_half_imply_the_extension_flag() {
        let all = offer(InitFlags::all());
        let config =
            SessionConfig { flags: InitFlags::HAS_EXPIRE_ONLY, ..SessionConfig::default() };
        let out = all.answer(&all.agree(&config), &config);
        assert_eq!(out.flags2, 1 << 3);
        assert_eq!(u64::from(out.flags), (InitFlags::INIT_EXT | InitFlags::MAX_PAGES).bits());
        let config = SessionConfig::default();
        assert_eq!(all.answer(&all.agree(&config), &config).flags2, 0);
    }

    #[test]
    fn the_largest_write_is_whole_pages_within_the_kernels_limit() {
        let page = system_page();
        let wishes =
            [(0, 1), (page, 1), (2 * page - 1, 1), (256 * page, 256), (u32::MAX, u16::MAX)];
        for (wish, pages) in wishes {
            let config = SessionConfig { max_write: wish, ..SessionConfig::default() };
            let all = offer(InitFlags::all());
            let out = all.answer(&all.agree(&config), &config);
            assert_eq!((out.max_pages, out.max_write), (pages, u32::from(pages) * page));
        }
    }
}
