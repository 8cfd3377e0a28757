//! The numbers of a volume as text for people. Text from a volume or a daemon is stripped of control characters.

use std::fmt;

use sfs_core::format::UtcTime;
use sfs_system::Human;

use super::health_report::HealthReport;
use super::lock_report::LockReport;
use super::reads_report::ReadsReport;
use super::store_price::Amount;
use super::store_report::StoreReport;
use super::volume_report::{
    ActivityReport, CacheReport, GroupReport, Holds, TransportReport, VolumeReport,
};

/// Prints the summary for an owner, and with `{:#}` all numbers.
impl fmt::Display for VolumeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.mount_point {
            Some(dir) => format!("mounted on {}", plain(dir)),
            None => "not mounted".into(),
        };
        let read_only =
            if self.read_only && self.mount_point.is_some() { ", read-only" } else { "" };
        writeln!(f, "{}: {place}{read_only}", plain(&self.device))?;
        writeln!(f, "  volume      {} {}", plain(&self.uuid), plain(&self.label))?;
        if self.hash_key_from_seed {
            writeln!(
                f,
                "              made from a seed: others may know the key of its hash of names"
            )?;
        }
        self.fmt_space(f)?;
        self.fmt_health(f)?;
        self.fmt_written(f)?;
        if let Some(store) = &self.store {
            writeln!(f, "{store}")?;
        }
        if f.alternate() { self.fmt_internals(f) } else { Ok(()) }
    }
}

impl fmt::Display for ReadsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  reads       ")?;
        match (self.bytes_per_second, self.request_micros) {
            (Some(bytes), Some(micros)) => {
                write!(f, "{} a second, {micros} us a request; gaps up to ", Human(bytes))?;
            }
            _ => write!(f, "from the page cache; gaps up to ")?,
        }
        let Self { gap_bytes_max, window_bytes_max, ahead_bytes, .. } = *self;
        let [gap, window, ahead] = [gap_bytes_max, window_bytes_max, ahead_bytes].map(Human);
        write!(f, "{gap} are read along; up to {window} read ahead, {ahead} of that used")
    }
}

/// Prints one line, one about the price if that is wanted, and one if something is wrong.
impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gets, puts, deletes, .. } = *self;
        let (up, down) = (Human(self.bytes_up), Human(self.bytes_down));
        write!(f, "  store       {puts} PUT ({up}), {gets} GET ({down}), {deletes} DELETE; ")?;
        match self.state_secs {
            Some(secs) => {
                f.write_str("read-only")?;
                if let Some(every) = self.follow_secs {
                    write!(f, ", follows every {every} s")?;
                }
                match self.states {
                    Some(states) => write!(f, "; states opened: {states}, the last ")?,
                    None => f.write_str("; ")?,
                }
                write!(f, "of {}", UtcTime(secs.cast_signed()))?;
            }
            None => write!(f, "fsync is {}", plain(&self.durability))?,
        }
        if self.encrypted {
            f.write_str("; encrypted")?;
        }
        if let Some(price) = self.price {
            let [requests, received, month] =
                [price.requests_micros, price.received_micros, price.month_micros].map(Amount);
            write!(
                f,
                "\n              price: {requests} for requests and {received} for bytes received since the mount"
            )?;
            // A reader does not know what is stored.
            if self.state_secs.is_none() {
                write!(f, "; {month} a month for {} stored", Human(self.stored_bytes))?;
            }
        }
        if let Some(failure) = &self.failure {
            return write!(f, "\n              nothing more is written: {}", plain(failure));
        }
        match (&self.trouble, self.trouble_secs) {
            (Some(trouble), Some(secs)) => {
                let what = if self.is_refused { "refused" } else { "waiting" };
                write!(f, "\n              {what} for {secs} s: {}", plain(trouble))
            }
            _ => Ok(()),
        }
    }
}

impl VolumeReport {
    /// Writes the lines about the parts of the program and their activity.
    fn fmt_internals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_segments(f)?;
        if let Some(TransportReport { name, reason, references }) = &self.transport {
            let (name, reason) = (plain(name), plain(reason));
            writeln!(f, "  transport   {name}: {reason}; {references} references to inodes")?;
        }
        if let Some(sandbox) = self.sandbox {
            writeln!(f, "  sandbox     {sandbox}")?;
        }
        if let Some(cache) = self.cache {
            let CacheReport { bounds_set, bounds_refused, .. } = cache;
            let human =
                |bytes: Option<u64>| bytes.map_or("unknown".into(), |b| Human(b).to_string());
            let (bound, speed) = (human(cache.dirty_bytes_max), human(cache.bytes_per_second));
            let reads = if cache.asynchronous_reads { "asynchronous" } else { "synchronous" };
            writeln!(f, "  device      writes {speed} a second; {reads} reads")?;
            writeln!(
                f,
                "  kernel      at most {bound} of dirty data; bound set {bounds_set} times, refused \
                 {bounds_refused} times"
            )?;
        }
        if let Some(reads) = self.reads {
            writeln!(f, "{reads}")?;
        }
        if let Some(policies) = &self.policies {
            let (grouping, victims) = (plain(&policies.grouping), plain(&policies.victims));
            writeln!(f, "  policies    {grouping} chooses groups, {victims} chooses victims")?;
        }
        if let Some(on_error) = &self.on_error {
            writeln!(f, "  on damage   {}", plain(on_error))?;
        }
        for group in &self.groups {
            self.fmt_group(f, group)?;
        }
        for LockReport { name, waits, holds } in &self.locks {
            let name = plain(name);
            let micros = |ns: u64| ns / 1000;
            writeln!(
                f,
                "  lock        {name}: waits 99.9 % {} us, longest {} us; held 99.9 % {} us, longest {} us",
                micros(waits.p999_ns),
                micros(waits.longest_ns),
                micros(holds.p999_ns),
                micros(holds.longest_ns)
            )?;
        }
        if let Some(mount) = &self.mount {
            fmt_activity(f, "this mount", mount)?;
        }
        fmt_activity(f, "all mounts", &self.life)
    }

    fn fmt_space(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, available) = (self.space.total_blocks, self.space.available_blocks);
        let used = 100.0 * total.saturating_sub(available) as f64 / total.max(1) as f64;
        let (available, total) = (self.size(available), self.size(total));
        let files = self.space.files;
        writeln!(
            f,
            "  space       {available} available of {total}, {used:.0}% used; {files} files"
        )
    }

    fn size(&self, blocks: u64) -> Human {
        Human(blocks.saturating_mul(self.space.block_bytes))
    }

    /// Writes the lines about errors, and the remedy.
    fn fmt_health(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_failed {
            writeln!(f, "  stopped     nothing is written any more")?;
        }
        if let Some(failure) = &self.failure {
            writeln!(f, "  failure     {failure}")?;
        }
        for error in &self.errors {
            writeln!(f, "  errors      {error}")?;
        }
        let device = plain(&self.device);
        match self.has_failed || self.failure.is_some() || !self.errors.is_empty() {
            true => writeln!(f, "  remedy      unmount, and run 'sfs-fsck -n --data {device}'")?,
            false => writeln!(f, "  health      no errors recorded")?,
        }
        if let Some(HealthReport { state, findings }) = &self.health {
            let mut title = state.to_string();
            for finding in findings {
                writeln!(f, "  {:<11} {}", std::mem::take(&mut title), plain(&finding.line()))?;
            }
        }
        match &self.wear {
            Some(wear) => writeln!(f, "  wear        {}", plain(&wear.sentence)),
            None => Ok(()),
        }
    }

    /// Writes the lines about the bytes that programs and SFS have written, and about cleaning.
    fn fmt_written(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mount) = &self.mount {
            writeln!(f, "  this mount  {}", Written(mount))?;
            let cleaned = mount.counter("segments_cleaned");
            let moved = Human(mount.counter("cleaning_bytes"));
            writeln!(f, "  cleaning    {cleaned} segments since the mount, {moved} moved")?;
        }
        let mounts = self.life.counter("mounts");
        writeln!(f, "  all mounts  {}, in {mounts} mounts", Written(&self.life))
    }

    fn fmt_segments(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = &self.segments;
        writeln!(
            f,
            "  segments    {} of {}: {} clean, {} open, {} sealed, {} drained, {} bad, {} in place",
            segments.count(),
            self.size(segments.blocks.into()),
            segments.clean,
            segments.open,
            segments.sealed,
            segments.drained,
            segments.bad,
            segments.placed
        )
    }

    fn fmt_group(&self, f: &mut fmt::Formatter<'_>, group: &GroupReport) -> fmt::Result {
        let holds = match group.holds {
            Holds::Data => "data",
            Holds::Metadata => "metadata",
        };
        let blocks = u64::from(group.segments) * u64::from(self.segments.blocks);
        let fill = 100.0 * group.live_blocks as f64 / blocks as f64;
        write!(
            f,
            "  group {:<5} {holds}: {} segments, {} of them open; {fill:.1}% live",
            group.group, group.segments, group.open_segments
        )?;
        match group.centre {
            Some(centre) => writeln!(f, "; centre {centre:.3e}"),
            None => writeln!(f),
        }
    }
}

/// Bytes that programs and SFS have written, and their ratio.
struct Written<'a>(&'a ActivityReport);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_users = Human(self.0.counter("user_bytes_written"));
        let to_device = Human(self.0.counter("device_bytes_written"));
        write!(f, "{by_users} written by programs, {to_device} to the device")?;
        match self.0.log_write_amplification {
            Some(factor) => write!(f, " ({factor:.2} times as much)"),
            None => Ok(()),
        }
    }
}

fn fmt_activity(f: &mut fmt::Formatter<'_>, title: &str, activity: &ActivityReport) -> fmt::Result {
    writeln!(f, "  {title}")?;
    for (name, count) in &activity.counters {
        let words = plain(&name.replace('_', " "));
        match name.contains("bytes") {
            true => writeln!(f, "    {words:<23} {count} ({})", Human(*count))?,
            false => writeln!(f, "    {words:<23} {count}")?,
        }
    }
    match activity.log_write_amplification {
        Some(factor) => writeln!(f, "    log write amplification {factor:.3}"),
        None => Ok(()),
    }
}

/// Replaces control characters: a volume may be forged, and a daemon may belong to another user.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_have_a_ratio_once_there_are_any() {
        let mut activity = ActivityReport::default();
        let text = Written(&activity).to_string();
        assert_eq!(text, "0 bytes written by programs, 0 bytes to the device");
        activity.counters.insert("user_bytes_written".into(), 1 << 20);
        activity.counters.insert("device_bytes_written".into(), 3 << 19);
        activity.log_write_amplification = Some(1.5);
        let text = Written(&activity).to_string();
        assert!(text.ends_with("to the device (1.50 times as much)"), "{text}");
    }

    #[test]
    fn no_text_can_control_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\n\u{9b}"), "a?[2Jb??");
    }
}
