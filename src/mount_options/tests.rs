//! Tests of parsing.

use std::time::Duration;

use sfs_core::request::ErrorReaction;

use super::*;

#[test]
fn later_options_override_earlier_ones() {
    let options = MountOptions::parse(["ro,cache=8M,nosuid", "rw,suid,commit=2"], false);
    let options = options.expect("the options are known");
    assert!(!options.volume.read_only);
    assert_eq!(options.volume.cache, 8 << 20);
    assert!(!options.flags.contains(MsFlags::MS_NOSUID));
    assert_eq!(options.volume.commit_interval, Duration::from_secs(2));
}

#[test]
fn options_that_mount_adds_are_dropped() {
    let list = "rw,nofail,_netdev,user,x-systemd.automount,comment=hi,X-mount.mkdir,relatime";
    MountOptions::parse([list], false).expect("the options are known");
}

#[test]
fn the_reactions_to_damage_are_those_of_ext4() {
    let reaction = |list| {
        let options = MountOptions::parse([list], false).expect("the options are known");
        options.volume.on_error
    };
    assert_eq!(reaction("rw"), ErrorReaction::Continue);
    assert_eq!(reaction("errors=remount-ro"), ErrorReaction::RemountReadOnly);
    assert_eq!(reaction("errors=remount-ro,errors=continue"), ErrorReaction::Continue);
    let refused = MountOptions::parse(["errors=panic"], false).expect_err("the value is refused");
    assert!(refused.to_string().starts_with("errors=panic: a filesystem in user space"));
}

#[test]
fn an_idle_volume_defragments_within_five_percent_unless_it_is_told_otherwise() {
    let percent = |list| {
        let options = MountOptions::parse([list], false).expect("the options are known");
        options.volume.idle_defragmentation
    };
    assert_eq!([percent("rw"), percent("defrag=20"), percent("defrag=off")], [5, 20, 0]);
}

#[test]
fn metrics_are_served_on_loopback_addresses() {
    for address in ["127.0.0.1:9100", "127.8.9.10:1", "[::1]:65535"] {
        let options = MountOptions::parse([format!("metrics={address}").as_str()], false);
        let metrics = options.expect("a loopback address").metrics;
        assert_eq!(metrics.map(|at| at.to_string()).as_deref(), Some(address));
    }
}

#[test]
fn only_read_only_mounts_follow() {
    let options = MountOptions::parse(["follow=86400", "ro"], false).expect("a day");
    assert_eq!(options.objects.follow, Some(Duration::from_secs(86_400)));
    for list in ["follow=5", "ro,follow=5,rw"] {
        let refused = MountOptions::parse([list], false).expect_err(list);
        assert_eq!(refused.status, 1);
        assert!(refused.to_string().contains("'follow': only a read-only mount"), "{refused}");
    }
}

#[test]
fn following_symbolic_links_can_be_switched() {
    for (list, expected) in [("nosymfollow", true), ("nosymfollow,symfollow", false)] {
        let options = MountOptions::parse([list], false).expect("the options are known");
        assert_eq!(options.flags.contains(MS_NOSYMFOLLOW), expected, "{list}");
    }
}

#[test]
fn an_unknown_option_is_named() {
    let failure = MountOptions::parse(["rw,frobnicate"], false).expect_err("the option is unknown");
    assert!(failure.to_string().contains("'frobnicate'"), "{failure}");
    assert_eq!(failure.status, 1);
    MountOptions::parse(["rw,frobnicate"], true).expect("sloppy ignores the unknown option");
    for nonsense in [
        "cache=lots",
        "cache=12",
        "commit=0",
        "commit=-1",
        "threads=0",
        "wear_levelling=0",
        "wear_levelling=on",
        "defrag=0",
        "defrag=101",
        "defrag=on",
        "cache=",
        "writeback=1",
        "errors=ignore",
        "errors=panic",
        "metrics=",
        "metrics=9100",
        "metrics=:9100",
        "metrics=localhost:9100",
        "metrics=0.0.0.0:9100",
        "metrics=10.0.0.1:9100",
        "metrics=[::]:9100",
        "metrics=[::ffff:127.0.0.1]:9100",
        "metrics=127.0.0.1",
        "metrics=127.0.0.1:0",
        "follow=0",
        "follow=86401",
        "follow=",
        "follow=on",
    ] {
        let failure = MountOptions::parse([nonsense], false).expect_err(nonsense);
        assert!(failure.to_string().starts_with(nonsense), "{failure}");
    }
}
