//! The page sfs(5): the filesystem, its mount options, and lines of /etc/fstab.

use clap_mangen::roff::{Roff, bold, italic, roman};
use sfs::mount_options::table::{MountOption, TABLE};

/// Returns the page.
pub(crate) fn options_page() -> String {
    let mut roff = Roff::new();
    let source = concat!("SFS ", env!("CARGO_PKG_VERSION"));
    roff.control("TH", ["sfs", "5", "", source, "SFS"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("sfs - a log-structured filesystem for flash, and its mount options")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "SFS writes everything to a log of segments, so that cards, sticks and drives with flash get large sequential \
         writes. A daemon in user space, sfs-mount(8), serves each mount through FUSE. After a crash or a power cut the \
         next mount rolls the log forward; a check is not needed before it.",
    )]);
    roff.control("SH", ["MOUNT OPTIONS"]);
    roff.text([roman(
        "The options follow -o of mount(8) or sfs-mount(8), or stand in the fourth field of fstab(5). Options that other \
         filesystems have and SFS does not need, such as user_xattr, are accepted without effect. An unknown option is an \
         error. The value in parentheses is the default. SIZE is a number of bytes, or a number with the suffix K, M or G.",
    )]);
    for option in TABLE {
        add(&mut roff, option);
    }
    roff.control("SH", ["EXAMPLES"]);
    roff.text([roman("Lines of /etc/fstab, of which sfs-mkfs(8) prints the UUID:")]);
    roff.control("PP", []);
    roff.control("nf", []);
    roff.text([roman(
        "/dev/disk/by-uuid/9b2c0c1e-0b5c-4c5e-8a53-2f0a1d7a5e11 /srv/data sfs defaults 0 2",
    )]);
    roff.text([roman("LABEL=card /media/card sfs noatime,nofail,noauto 0 0")]);
    roff.control("fi", []);
    roff.control("PP", []);
    roff.text([roman(
        "With 2 in the last field fsck(8) looks at the volume before it is mounted: at one that was unmounted only for a \
         moment. The line then has to begin with a path: at boot fsck(8) finds no line with UUID= or LABEL= for a device. \
         With 0 the mount alone recovers the volume, which is sufficient after a power cut.",
    )]);
    roff.control("SH", ["FILES"]);
    roff.control("TP", []);
    roff.text([italic("/usr/lib/udev/rules.d/65-sfs.rules")]);
    roff.text([roman(
        "makes the links in /dev/disk/by-uuid and /dev/disk/by-label, which UUID= and LABEL= need.",
    )]);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(
        "sfs-mount(8), sfs-umount(8), sfs-mkfs(8), sfs-fsck(8), sfs-ctl(8), fstab(5), mount(8)",
    )]);
    roff.to_roff()
}

fn add(roff: &mut Roff, option: &MountOption) {
    roff.control("TP", []);
    let mut forms = Vec::new();
    for (at, form) in option.forms.iter().enumerate() {
        if at > 0 {
            forms.push(roman(", "));
        }
        match form.split_once('=') {
            Some((name, value)) => {
                forms.extend([bold(format!("{name}=")), italic(value)]);
            }
            None => forms.push(bold(*form)),
        }
    }
    roff.text(forms);
    roff.text([roman(option.description())]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_mount_option() {
        let page = options_page();
        for name in TABLE.iter().flat_map(MountOption::names) {
            let escaped = name.replace('-', "\\-");
            let is_there =
                ["\\fR", "="].iter().any(|end| page.contains(&format!("\\fB{escaped}{end}")));
            assert!(is_there, "{name}");
        }
    }
}
