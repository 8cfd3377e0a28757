//! The table of signatures: names, positions and bytes.
//!
//! Sources are each project's on-disk headers and the probers of libblkid. Every position is within
//! the ranges of the parent module, which a test checks.

/// Position of a signature.
#[derive(Clone, Copy)]
pub(super) enum Position {
    /// Offset from the start, in bytes.
    Start(u64),
    /// `offset` bytes after the position `back` bytes before the end, where the end is rounded down
    /// to a multiple of `unit`.
    End { unit: u64, back: u64, offset: u64 },
}

/// Bytes that identify a kind of content.
pub(super) struct Signature {
    pub(super) name: &'static str,
    pub(super) position: Position,
    pub(super) magic: &'static [u8],
}

const fn start(name: &'static str, offset: u64, magic: &'static [u8]) -> Signature {
    Signature { name, position: Position::Start(offset), magic }
}

const fn end(
    name: &'static str,
    unit: u64,
    back: u64,
    offset: u64,
    magic: &'static [u8],
) -> Signature {
    Signature { name, position: Position::End { unit, back, offset }, magic }
}

const K: u64 = 1024;

/// Kind of an SFS volume, with or without a superblock.
pub const SFS: &str = "SFS volume";
const SFS_CACHE: &str = "cache of an SFS volume";
const BTRFS: &str = "btrfs filesystem";
const F2FS: &str = "F2FS filesystem";
const NILFS: &str = "NILFS2 filesystem";
const NILFS_MAGIC: &[u8] = b"\x02\0\0\0\0\0\x34\x34";
const FAT: &str = "FAT filesystem";
const ISO: &str = "ISO 9660 filesystem";
const UDF: &str = "UDF filesystem";
const SQUASHFS: &str = "squashfs filesystem";
const SWAP: &str = "swap area";
const LUKS: &str = "LUKS encrypted volume";
const LUKS_SECOND: &[u8] = b"SKUL\xba\xbe";
const LVM: &str = "LVM physical volume";
const MD: &str = "Linux software RAID member";
const MD_MAGIC: &[u8] = b"\xfc\x4e\x2b\xa9";
const ZFS: &str = "ZFS pool member";
const ZFS_MAGIC: &[u8] = b"\x11\x7a\x0c\xb1\x7a\xda\x10\x02";
/// End of the name-value list of a label, less its 40 bytes of embedded checksum.
const ZFS_OFFSET: u64 = 128 * K - 40;
const BCACHE: &str = "bcache device";
const BCACHEFS: &str = "bcachefs filesystem";
const BCACHEFS_MAGIC: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
const REISERFS: &str = "ReiserFS filesystem";
const UFS: &str = "UFS filesystem";
const HFS: &str = "HFS filesystem";
const HFS_PLUS: &str = "HFS+ filesystem";
const MINIX: &str = "Minix filesystem";
const OCFS2: &str = "OCFS2 filesystem";
const GPT: &str = "GPT partition table";
const GPT_MAGIC: &[u8] = b"EFI PART";
const CRAMFS: &str = "cramfs filesystem";

pub(super) const SIGNATURES: &[Signature] = &[
    start(SFS, 16 * K, b"SFS-log\n"),
    start(SFS_CACHE, 16 * K, b"SFScach\n"),
    start(SFS_CACHE, 20 * K, b"SFScach\n"),
    end(SFS, 4 * K, 4 * K, 0, b"SFS-log\n"),
    // The first checkpoint.
    start(SFS, 64 * K, b"SFSp"),
    start("ext2/ext3/ext4 filesystem", 0x438, b"\x53\xef"),
    start("XFS filesystem", 0, b"XFSB"),
    start(BTRFS, 64 * K + 0x40, b"_BHRfS_M"),
    start(BTRFS, 64 * K * K + 0x40, b"_BHRfS_M"),
    start(F2FS, 0x400, b"\x10\x20\xf5\xf2"),
    start(F2FS, 0x1400, b"\x10\x20\xf5\xf2"),
    start(NILFS, 0x400, NILFS_MAGIC),
    end(NILFS, 4 * K, 4 * K, 0, NILFS_MAGIC),
    start("exFAT filesystem", 3, b"EXFAT   "),
    start("NTFS filesystem", 3, b"NTFS    "),
    start("ReFS filesystem", 3, b"ReFS\0"),
    start("BitLocker encrypted volume", 3, b"-FVE-FS-"),
    start(FAT, 0x52, b"FAT32   "),
    start(FAT, 0x36, b"FAT16   "),
    start(FAT, 0x36, b"FAT12   "),
    start(FAT, 0x36, b"FAT     "),
    start(ISO, 0x8001, b"CD001"),
    start(UDF, 0x8001, b"BEA01"),
    start(UDF, 0x8801, b"NSR02"),
    start(UDF, 0x8801, b"NSR03"),
    start(SQUASHFS, 0, b"hsqs"),
    start(SQUASHFS, 0, b"sqsh"),
    start(CRAMFS, 0, b"\x45\x3d\xcd\x28"),
    start(CRAMFS, 0x200, b"\x45\x3d\xcd\x28"),
    start("romfs filesystem", 0, b"-rom1fs-"),
    start("EROFS filesystem", 0x400, b"\xe2\xe1\xf5\xe0"),
    start(SWAP, 4 * K - 10, b"SWAPSPACE2"),
    start(SWAP, 4 * K - 10, b"SWAP-SPACE"),
    start(SWAP, 8 * K - 10, b"SWAPSPACE2"),
    start(SWAP, 16 * K - 10, b"SWAPSPACE2"),
    start(SWAP, 32 * K - 10, b"SWAPSPACE2"),
    start(SWAP, 64 * K - 10, b"SWAPSPACE2"),
    start("suspended system image", 4 * K - 10, b"S1SUSPEND"),
    start("suspended system image", 4 * K - 10, b"LINHIB0001"),
    start(LUKS, 0, b"LUKS\xba\xbe"),
    start(LUKS, 16 * K, LUKS_SECOND),
    start(LUKS, 32 * K, LUKS_SECOND),
    start(LUKS, 64 * K, LUKS_SECOND),
    start(LUKS, 128 * K, LUKS_SECOND),
    start(LUKS, 256 * K, LUKS_SECOND),
    start(LUKS, 512 * K, LUKS_SECOND),
    start(LUKS, 1024 * K, LUKS_SECOND),
    start(LUKS, 2048 * K, LUKS_SECOND),
    start(LUKS, 4096 * K, LUKS_SECOND),
    start(LVM, 0, b"LABELONE"),
    start(LVM, 512, b"LABELONE"),
    start(LVM, 1024, b"LABELONE"),
    start(LVM, 1536, b"LABELONE"),
    start(MD, 0, MD_MAGIC),
    start(MD, 4 * K, MD_MAGIC),
    end(MD, 4 * K, 8 * K, 0, MD_MAGIC),
    end(MD, 64 * K, 64 * K, 0, MD_MAGIC),
    end("Intel RAID member", 512, 1024, 0, b"Intel Raid ISM Cfg Sig. "),
    end("DDF RAID member", 512, 512, 0, b"\xde\x11\xde\x11"),
    start(ZFS, ZFS_OFFSET, ZFS_MAGIC),
    start(ZFS, 256 * K + ZFS_OFFSET, ZFS_MAGIC),
    end(ZFS, 256 * K, 512 * K, ZFS_OFFSET, ZFS_MAGIC),
    end(ZFS, 256 * K, 256 * K, ZFS_OFFSET, ZFS_MAGIC),
    start(BCACHE, 0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    start(BCACHEFS, 0x1018, BCACHEFS_MAGIC),
    end(BCACHEFS, 512, 1024 * K, 0x18, BCACHEFS_MAGIC),
    start("Ceph BlueStore device", 0, b"bluestore block device"),
    start("Stratis pool member", 0x204, b"!Stra0tis\x86\xff\x02^Arh"),
    start("dm-verity hash device", 0, b"verity\0\0"),
    start("dm-integrity volume", 0, b"integrt\0"),
    start("VDO volume", 0, b"dmvdo001"),
    start("JFS filesystem", 0x8000, b"JFS1"),
    start(REISERFS, 0x10034, b"ReIsErFs"),
    start(REISERFS, 0x10034, b"ReIsEr2Fs"),
    start(REISERFS, 0x10034, b"ReIsEr3Fs"),
    start(REISERFS, 0x2034, b"ReIsErFs"),
    start("Reiser4 filesystem", 0x10000, b"ReIsEr4"),
    start(UFS, 0x2000 + 0x55c, b"\x54\x19\x01\x00"),
    start(UFS, 0x2000 + 0x55c, b"\x00\x01\x19\x54"),
    start(UFS, 0x10000 + 0x55c, b"\x19\x01\x54\x19"),
    start(UFS, 0x10000 + 0x55c, b"\x19\x54\x01\x19"),
    start(UFS, 0x40000 + 0x55c, b"\x19\x01\x54\x19"),
    start(HFS, 0x400, b"BD"),
    start(HFS_PLUS, 0x400, b"H+\0\x04"),
    start(HFS_PLUS, 0x400, b"HX\0\x05"),
    end(HFS_PLUS, 512, 1024, 0, b"H+\0\x04"),
    end(HFS_PLUS, 512, 1024, 0, b"HX\0\x05"),
    start("APFS container", 0x20, b"NXSB"),
    start(MINIX, 0x410, b"\x7f\x13"),
    start(MINIX, 0x410, b"\x8f\x13"),
    start(MINIX, 0x410, b"\x68\x24"),
    start(MINIX, 0x410, b"\x78\x24"),
    start(MINIX, 0x418, b"\x5a\x4d"),
    start("UBI volume", 0, b"UBI#"),
    start("UBIFS filesystem", 0, b"\x31\x18\x10\x06"),
    start("JFFS2 filesystem", 0, b"\x85\x19"),
    start("JFFS2 filesystem", 0, b"\x19\x85"),
    start(OCFS2, 0x400, b"OCFSV2"),
    start(OCFS2, 0x800, b"OCFSV2"),
    start(OCFS2, 0x1000, b"OCFSV2"),
    start(OCFS2, 0x2000, b"OCFSV2"),
    start("GFS2 filesystem", 0x10000, b"\x01\x16\x19\x70\0\0\0\x01"),
    start(GPT, 512, GPT_MAGIC),
    start(GPT, 4 * K, GPT_MAGIC),
    end(GPT, 512, 512, 0, GPT_MAGIC),
    end(GPT, 4 * K, 4 * K, 0, GPT_MAGIC),
    start("BSD disklabel", 512, b"\x57\x45\x56\x82"),
];
