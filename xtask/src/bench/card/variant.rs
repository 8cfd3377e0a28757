//! The filesystems: each with its defaults, and with the options that users of flash would set.

use anyhow::{Result, bail};

use crate::filesystem::FilesystemKind;

/// A filesystem with its mount options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    /// Name on the command line.
    pub(super) name: &'static str,
    pub(super) kind: FilesystemKind,
    /// Mount options; with them goes fstrim(8) after the ageing, as once a week.
    pub(super) options: Option<&'static str>,
}

const fn variant(
    name: &'static str,
    kind: FilesystemKind,
    options: Option<&'static str>,
) -> Variant {
    Variant { name, kind, options }
}

/// All filesystems, in the order of the table.
pub(super) const VARIANTS: [Variant; 7] = [
    variant("sfs", FilesystemKind::Sfs, None),
    variant("ext4", FilesystemKind::Ext4, None),
    variant("ext4-set", FilesystemKind::Ext4, Some("noatime,discard")),
    variant("xfs", FilesystemKind::Xfs, None),
    variant("xfs-set", FilesystemKind::Xfs, Some("noatime,discard")),
    variant("btrfs", FilesystemKind::Btrfs, None),
    variant("btrfs-set", FilesystemKind::Btrfs, Some("noatime,ssd,discard=async")),
];

impl Variant {
    /// Returns the name in tables.
    pub(super) fn title(&self) -> String {
        match self.options {
            Some(options) => format!("{}, `{options}`", self.kind.name()),
            None => self.kind.name().to_owned(),
        }
    }

    /// Returns the filesystems with these names, in the order of the table; all if there is no name.
    pub(super) fn chosen(names: &[String]) -> Result<Vec<Self>> {
        let known = |name: &String| VARIANTS.iter().any(|variant| variant.name == name);
        if let Some(unknown) = names.iter().find(|name| !known(name)) {
            let all = VARIANTS.map(|variant| variant.name).join(", ");
            bail!("--filesystems {unknown}: not one of {all}");
        }
        let is_chosen =
            |variant: &Self| names.is_empty() || names.iter().any(|name| name == variant.name);
        Ok(VARIANTS.into_iter().filter(is_chosen).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filesystems_are_chosen_by_name() {
        let chosen = Variant::chosen(&["ext4-set".into(), "sfs".into()]).expect("two");
        let names: Vec<_> = chosen.iter().map(|variant| variant.name).collect();
        assert_eq!(names, ["sfs", "ext4-set"]);
        assert_eq!(Variant::chosen(&[]).expect("all").len(), VARIANTS.len());
        let error = Variant::chosen(&["zfs".into()]).expect_err("unknown").to_string();
        assert!(error.starts_with("--filesystems zfs: not one of sfs, ext4,"), "{error}");
    }
}
