//! The table of mount options: the help of `sfs-mount`, the suggestions for unknown options, and the manual page sfs(5) are
//! made from it.

use std::fmt::Write as _;

/// Column of the meanings in the help of `sfs-mount`, in characters.
const MEANING_COLUMN: usize = 24;

/// Width of that help, in characters.
const WIDTH: usize = 100;

/// Options that belong together, and their effect.
#[derive(Clone, Copy, Debug)]
pub struct MountOption {
    /// Options, each with the form of its value: `cache=SIZE`, `noacl`.
    pub forms: &'static [&'static str],
    /// Effect of the options.
    pub meaning: &'static str,
    /// Value without the option; empty if there is no single one.
    pub default: &'static str,
    /// `true` if mount(8) has the options, too.
    pub is_common: bool,
}

impl MountOption {
    /// Returns the names, without values.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.forms.iter().map(|form| form.split_once('=').map_or(*form, |(name, _)| name))
    }

    /// Returns the meaning as a sentence, with the default.
    pub fn description(&self) -> String {
        match self.default {
            "" => self.meaning.to_owned(),
            default => format!("{} ({default})", self.meaning),
        }
    }
}

const fn common(forms: &'static [&'static str], meaning: &'static str) -> MountOption {
    MountOption { forms, meaning, default: "", is_common: true }
}

const fn own(
    forms: &'static [&'static str],
    meaning: &'static str,
    default: &'static str,
) -> MountOption {
    MountOption { forms, meaning, default, is_common: false }
}

/// Options of a mount, in the order of the help.
pub const TABLE: &[MountOption] = &[
    common(
        &["ro", "rw", "nosuid", "nodev", "noexec", "nosymfollow"],
        "as for every filesystem; only root can use nosymfollow",
    ),
    common(
        &["relatime", "noatime", "strictatime"],
        "reading moves a file's time of access once after each change and once a day, never, or always \
         (relatime); the time waits in memory",
    ),
    own(
        &["norecovery"],
        "mount the last checkpoint, read-only, without the log since then, and write nothing",
        "",
    ),
    common(
        &["sync", "dirsync"],
        "make every operation, or every operation on names, durable before it returns",
    ),
    own(
        &["write_buffer=SIZE"],
        "memory for data that waits to be written",
        "64M, less where memory is short",
    ),
    own(
        &["cache=SIZE"],
        "memory for metadata and read-ahead; below 16M the kernel alone reads ahead",
        "128M, less where memory is short",
    ),
    own(
        &["cache_dev=PATH", "nocache"],
        "SSD that is the cache of this hard drive, or mount without it",
        "the device with the cache's UUID",
    ),
    own(
        &["cache_file=PATH"],
        "file or device that is the local cache of a volume in an object store; a missing file is made",
        "",
    ),
    own(
        &["cache_size=SIZE"],
        "what that cache may take, but for what is not uploaded yet",
        "half of what is free there",
    ),
    own(
        &["durability=local|remote"],
        "fsync waits for the local cache, or for the object store",
        "local",
    ),
    own(
        &["outage=block|eio"],
        "while the object store does not answer or refuses, what needs it waits, or reads and fsync fail",
        "block",
    ),
    own(&["outage_wait=SECONDS"], "with outage=eio, longest wait before that", "30"),
    own(&["upload=SECONDS"], "longest time until what is written is uploaded", "5"),
    own(
        &["follow=SECONDS"],
        "with ro, look for a newer state of a volume in an object store so often, and show it",
        "the state at the mount, as long as its objects are there",
    ),
    own(
        &["key_file=PATH"],
        "file with the key of a volume whose objects are encrypted; others may not read it",
        "",
    ),
    own(
        &["local_state"],
        "with ro and cache_file=, show the volume as this machine's cache has it, with what was never uploaded: for \
         copying, after another machine has taken the volume over",
        "",
    ),
    own(
        &["takeover"],
        "use a volume in an object store that another machine has not released: what that machine has not \
         uploaded is lost, and it cannot write any more",
        "",
    ),
    own(&["commit=SECONDS"], "longest time that written data waits", "5"),
    own(
        &["checkpoint=SECONDS"],
        "longest time between checkpoints",
        "30; 300 while little is written",
    ),
    own(
        &["policy=NAME"],
        "which blocks are written together: sfs, sfs-fast12, sepbit, none, ...",
        "sfs",
    ),
    own(
        &["groups=N"],
        "maximum number of groups, if the policy lets the user choose it",
        "8 for sfs",
    ),
    own(&["victim=NAME"], "which segment is cleaned first", "the default of the policy"),
    own(
        &["remainder=pure|mixed"],
        "blocks that do not fill a segment go to their own group, or all to one group",
        "pure",
    ),
    own(
        &["cleaning=yielding|eager"],
        "clean in the background between requests, or at once",
        "yielding",
    ),
    own(
        &["wear_levelling=N"],
        "move data that never changes once its segment is N erase cycles behind the most used one: for \
         flash without a controller that levels wear itself",
        "off",
    ),
    own(
        &["defrag=PERCENT|off"],
        "while the volume is idle, put files in order that are read in order and no longer written: this \
         writes about PERCENT of what programs write at most",
        "5",
    ),
    own(&["discard", "nodiscard"], "discard unused segments on the device, or do not", "discard"),
    own(&["grow", "nogrow"], "grow a volume that is smaller than its device, or do not", "nogrow"),
    own(
        &["errors=continue|remount-ro"],
        "after damage is found, continue, or stop all writes",
        "continue",
    ),
    own(
        &["writeback=on|off", "writeback", "nowriteback"],
        "let the kernel gather writes before SFS sees them; without, write(2) fails on a full volume, and \
         holes are reported",
        "on",
    ),
    own(
        &["async_dio=auto|on|off"],
        "let libaio and io_uring have several direct requests in flight; auto: from Linux 7.3 on; with an \
         older kernel, on may lose direct writes to a file that is also read through the page cache",
        "auto",
    ),
    own(
        &["async_read=auto|on|off"],
        "let the kernel send several reads of a file at a time; auto: if the device reads 200 MiB in a second, \
         and the daemon does not read ahead or the mount is not root's; off: reads do not wait behind \
         queued writes",
        "auto",
    ),
    own(
        &["acl", "noacl"],
        "enforce access control lists, or do not mount; noacl: the mode alone decides, and other users \
         than the owner of a directory cause fewer requests",
        "lists where the kernel and the transport can",
    ),
    own(
        &["threads=N"],
        "threads that serve requests, 1..64",
        "one for each core, two to 14, and two, or 32 for a volume in an object store; with io_uring twice as many",
    ),
    own(
        &["metrics=ADDRESS:PORT"],
        "serve metrics to Prometheus at a loopback address, to every user of the machine and without \
         names; root and the mounting user need no option for it: see sfs-ctl metrics",
        "not served",
    ),
    own(
        &["sandbox", "nosandbox"],
        "limit the daemon to what it needs after the mount, by capabilities, seccomp and Landlock, or do not",
        "sandbox",
    ),
    own(
        &["survive", "nosurvive"],
        "start the daemon again when it dies, with everything that programs had written, or unmount; only \
         root can, over /dev/fuse; before Linux 6.10 calls under way get an error",
        "survive for mounts by mount(8) from Linux 6.10 on if nothing is in the way, nosurvive otherwise",
    ),
    own(&["allow_other"], "let other users access the mount of an ordinary user", ""),
    common(
        &["remount"],
        "change ro, rw, suid, dev, exec, symfollow and the times of access of a mount; only root can",
    ),
];

/// Returns the options as the last part of the help of `sfs-mount`.
pub fn help() -> String {
    let mut text = "Mount options:".to_owned();
    for option in TABLE {
        let forms = format!("  {}", option.forms.join(", "));
        let mut column = forms.len();
        let _ = write!(text, "\n{forms}");
        let indent = if column + 2 > MEANING_COLUMN { "  " } else { "" };
        text.push_str(indent);
        column += indent.len();
        while column < MEANING_COLUMN {
            text.push(' ');
            column += 1;
        }
        wrap(&mut text, column, &option.description());
    }
    text
}

/// Returns the options that only SFS has, as one list.
pub(super) fn own_forms() -> String {
    let own = TABLE.iter().filter(|option| !option.is_common);
    own.flat_map(|option| option.forms).copied().collect::<Vec<_>>().join(", ")
}

/// Appends `words` from `column` on, and breaks lines before [`WIDTH`].
fn wrap(text: &mut String, mut column: usize, words: &str) {
    let mut starts_line = true;
    for word in words.split(' ') {
        if !starts_line && column + 1 + word.len() > WIDTH {
            let _ = write!(text, "\n{:MEANING_COLUMN$}", "");
            column = MEANING_COLUMN;
            starts_line = true;
        }
        if !starts_line {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
        starts_line = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::MountOptions;
    use super::*;

    #[test]
    fn the_table_has_known_options_and_the_help_has_all_of_them() {
        let help = help();
        for option in TABLE {
            for (form, name) in option.forms.iter().zip(option.names()) {
                // A value that is wrong shows a known name.
                let example = if form.contains('=') { &format!("{name}=") } else { name };
                let known = MountOptions::default().take(example);
                assert!(name == "remount" || !matches!(known, Ok(false)), "{form} is unknown");
                assert!(help.contains(form), "{form}");
            }
        }
        assert!(help.lines().all(|line| line.len() <= WIDTH), "{help}");
        assert!(help.contains("\n  ro, rw, nosuid, nodev, noexec, nosymfollow  as for"), "{help}");
        assert!(help.contains("\n  cache=SIZE            memory for metadata"), "{help}");
    }

    #[test]
    fn every_option_that_the_parser_knows_is_in_the_table() {
        // The names in the parser's `match` arms, so that a new option cannot be left out.
        let source = include_str!("../mount_options.rs");
        let body = |start: &str| {
            let from = source.find(start).expect("the function exists") + start.len();
            let len = source[from..].find("\n    }\n").expect("the function ends");
            &source[from..from + len]
        };
        let names: Vec<&str> = TABLE.iter().flat_map(MountOption::names).collect();
        for function in ["fn take_value", "fn take_own_flag"] {
            let arms = body(function).lines().filter_map(|line| {
                let pattern = line.strip_prefix("            \"")?;
                pattern.split_once("\" ").filter(|(_, rest)| rest.contains("=>"))
            });
            let known: Vec<&str> = arms.map(|(name, _)| name).collect();
            assert!(known.len() > 10, "{function}: {known:?}");
            for name in known {
                assert!(names.contains(&name), "{name} of {function} is not in the table");
            }
        }
    }
}
