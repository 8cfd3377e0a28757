//! The order of the layers of each crate that is checked.

/// A crate and the order of its outermost modules.
pub(super) struct Layered {
    /// Folder of the sources, from the root of the repository.
    pub(super) sources: &'static str,
    /// Outermost modules of the library from the lowest layer to the highest. Modules of one layer may
    /// import each other, but not in a cycle. Without layers only cycles are looked for.
    pub(super) layers: &'static [&'static [&'static str]],
    pub(super) circles: Circles,
}

/// Import cycles that are reported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Circles {
    /// Cycles among modules beside each other, and between a module's file and its children.
    WithParents,
    /// Only cycles among modules beside each other.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for a crate whose folders are not split yet")
    )]
    BetweenChildren,
}

pub(super) const CRATES: [Layered; 6] = [
    Layered {
        sources: "crates/sfs-core/src",
        layers: &[
            &["lock_rank", "mutant"],
            &["format"],
            &["error"],
            &["memory"],
            &["request"],
            &["counters"],
            &["wear"],
            &["policy"],
            &["segments"],
            &["tree"],
            &["health"],
            &["io"],
            &["metadata"],
            &["files"],
            &["log"],
            &["reserves"],
            &["writeback"],
            &["clean"],
            &["space"],
            &["recovery"],
            &["volume"],
        ],
        circles: Circles::WithParents,
    },
    Layered {
        sources: "crates/sfs-fsck/src",
        layers: &[
            &["error", "finding"],
            &["findings", "progress"],
            &["read"],
            &["check"],
            &["repair"],
            &["cli"],
        ],
        circles: Circles::WithParents,
    },
    Layered {
        sources: "crates/sfs-lab/src",
        layers: &[
            &["closed_form", "ram_volume", "random", "report", "trace_text"],
            &["request_load"],
            &["block_trace", "request_replay"],
            &["exported", "workload"],
            &["host", "in_memory", "object_load", "raw_flash", "simulation"],
            &["advice", "flash"],
        ],
        circles: Circles::WithParents,
    },
    Layered {
        sources: "crates/sfs-view/src",
        layers: &[
            &["model", "numbers"],
            &["escape", "hotness", "rates"],
            &["sentences"],
            &["html", "terminal"],
        ],
        circles: Circles::WithParents,
    },
    Layered {
        sources: "crates/sfs-fuse/src",
        layers: &[
            &["protocol"],
            &["channels"],
            &["handler"],
            &["parked"],
            &["pausing"],
            &["server"],
            &["fuse_session"],
        ],
        circles: Circles::WithParents,
    },
    Layered {
        sources: "src",
        layers: &[
            &[
                "device_speed",
                "exit_error",
                "file_clock",
                "kernel_release",
                "logging",
                "panic_hook",
                "private_file",
                "socket_deadline",
                "unsafe_calls",
            ],
            &["mounted_volume", "program", "ready_pipe", "sandbox", "volume_path"],
            &[
                "background",
                "bdi",
                "log_thread",
                "memory_budget",
                "mount",
                "mount_options",
                "survival",
                "timed_device",
                "volume_cache",
                "waiting_requests",
            ],
            &["freeze", "monitor", "object_volume", "request_recorder"],
            &["fuse"],
            &["transport"],
            &["inspect", "recent_cleanings", "resize_report", "stat_report"],
            &["handover", "health_log"],
            &["control"],
            &["metrics"],
            &[
                "asked_work_command",
                "cache_command",
                "defrag_command",
                "file_command",
                "freeze_command",
                "health",
                "hot_command",
                "image",
                "metrics_command",
                "mount_session",
                "remount",
                "resize",
                "scrub_command",
                "segments_command",
                "stat",
                "trace_command",
                "unmount",
                "upgrade_command",
            ],
            &["command_line"],
        ],
        circles: Circles::WithParents,
    },
];
