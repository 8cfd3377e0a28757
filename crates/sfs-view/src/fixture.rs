//! A volume for tests: 1,000 segments in five groups, a busy mount, and a ledger.

use serde_json::{Value, json};

/// Number of segments.
pub(crate) const SEGMENTS: u32 = 1000;

/// Returns the JSON of `sfs-ctl segments`.
pub(crate) fn segments() -> Value {
    let segment = |no: u32| {
        let (state, group, live) = match no % 10 {
            _ if no == 500 => ("bad", None, 0),
            0..=3 => ("clean", None, 0),
            4 => ("sealed", Some(0), 180),
            5 if no < 70 => ("open", Some(1 + no / 10 % 4), 20),
            9 if no % 50 == 49 => ("drained", None, 0),
            digit => ("sealed", Some(digit - 4), 256 - no / 4),
        };
        let hotness = group
            .filter(|group| *group > 0)
            .map(|group| 0.5 / f64::from(1 << (3 * group + no % 3)));
        json!({"segment": no, "state": state, "group": group, "live_blocks": live, "modified": 7,
               "hotness": hotness, "erases": no % 10})
    };
    let all: Vec<Value> = (0..SEGMENTS).map(segment).collect();
    json!({"version": 1, "device": "/dev/sdb1", "block_bytes": 4096, "segment_blocks": 256, "segment_first": 256,
           "now": 9999, "tick_blocks": 1, "segments": all})
}

/// Returns the JSON of `sfs-ctl stat`, after `secs` seconds of the mount.
pub(crate) fn numbers(secs: u64) -> Value {
    let latency = |operation: &str, rate: u64, p50: u64, p99: u64, longest: u64| {
        let count = 100 + rate * secs;
        json!({"operation": operation, "count": count, "p50_us": p50, "p99_us": p99, "longest_us": longest,
               "total_us": count * p50, "octaves": [count]})
    };
    let (user, device) = (50_000_000 + secs * 3_000_000, 60_000_000 + secs * 3_900_000);
    let day = |no: u64| {
        json!({"day": format!("2026-11-{no:02}"), "user_bytes": no * 40_000_000, "cleaning_bytes": no * 9_000_000,
               "metadata_bytes": 30_000_000, "defragmentation_bytes": 0})
    };
    json!({
        "version": 1, "device": "/dev/sdb1", "mount_point": "/mnt/card", "read_only": false,
        "transport": {"name": "uring", "reason": "the default", "references": 12},
        "uuid": "3c6ff2c4-41a5-4b0a-9d0e-0a3b2a90f001", "label": "camera",
        "space": {"block_bytes": 4096, "total_blocks": 240_000, "free_blocks": 100_000,
                  "available_blocks": 96_000, "files": 1234},
        "segments": {"blocks": 256, "clean": 400, "open": 7, "sealed": 572, "drained": 20, "bad": 1, "placed": 0},
        "policies": {"placement": "sfs", "victims": "index"},
        "groups": [{"group": 0, "holds": "metadata", "segments": 100, "open_segments": 0, "live_blocks": 18_000},
                   {"group": 1, "holds": "data", "segments": 100, "open_segments": 2, "live_blocks": 13_000}],
        "mount": {"counters": {"user_bytes_written": user, "device_bytes_written": device,
                               "cleaning_bytes": secs * 300_000}},
        "life": {"counters": {"mounts": 41, "user_bytes_written": 9_000_000_000_u64,
                              "device_bytes_written": 11_430_000_000_u64}, "log_write_amplification": 1.27},
        "latencies": [latency("lookup", 200, 3, 20, 800), latency("write", 730, 34, 1_200, 20_000),
                      latency("fsync", 12, 900, 9_000, 120_000), latency("read", 0, 11, 90, 4_000)],
        "cleanings": [{"secs_ago": 3, "victims": 4, "moved_bytes": 1_258_291, "freed_bytes": 2_936_012, "millis": 34},
                      {"secs_ago": 75, "victims": 1, "moved_bytes": 0, "freed_bytes": 1_048_576, "millis": 2}],
        "wear": {"since": "2026-11-01", "user_bytes": 9_000_000_000_u64, "cleaning_bytes": 1_900_000_000_u64,
                 "metadata_bytes": 530_000_000, "device_bytes": 11_430_000_000_u64,
                 "days": (1..=26).map(day).collect::<Vec<_>>(), "months": [],
                 "erases": {"total": 4_500, "mean": 4.5, "max": 9, "max_segment": 9}, "device": null,
                 "sentence": "This card has been written 10.9 times over. The most used segment was erased 9 times. \
                              At this month's rate 3,000 cycles last 14 years."},
        "health": {"state": "ok", "findings": []},
    })
}

/// Returns the JSON of `sfs-ctl hot`.
pub(crate) fn heat() -> Value {
    json!({"version": 1, "written_bytes": 8_000_000_000_u64, "most_written_files": [
        {"inode": 17, "path": "/var/log/journal/system.journal", "written_bytes": 3_280_000_000_u64, "size_bytes": 16_777_216},
        {"inode": 18, "path": "/home/user/photos.db", "written_bytes": 1_760_000_000_u64, "size_bytes": 40_960_000},
        {"inode": 19, "path": null, "written_bytes": 400_000_000, "size_bytes": 4096}]})
}
