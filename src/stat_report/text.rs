//! The numbers of a volume as text for people. Text from a volume or a daemon is stripped of control characters.

use std::fmt;

use sfs_system::Human;

use super::volume_report::{
    ActivityReport, CacheReport, GroupReport, Holds, TransportReport, VolumeReport,
};

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
        self.fmt_space(f)?;
        if let Some(TransportReport { name, reason, references }) = &self.transport {
            let (name, reason) = (plain(name), plain(reason));
            writeln!(f, "  transport   {name}: {reason}; {references} references to inodes")?;
        }
        if let Some(CacheReport { dirty_bytes_max, bounds_set, bounds_refused }) = self.cache {
            let bound = dirty_bytes_max.map_or("unknown".into(), |bytes| Human(bytes).to_string());
            writeln!(
                f,
                "  kernel      holds {bound} dirty at most; set {bounds_set} times, refused \
                 {bounds_refused} times"
            )?;
        }
        if let Some(policies) = &self.policies {
            let (grouping, victims) = (plain(&policies.grouping), plain(&policies.victims));
            writeln!(f, "  policies    {grouping} places, {victims} chooses what is cleaned")?;
        }
        self.fmt_errors(f)?;
        for group in &self.groups {
            self.fmt_group(f, group)?;
        }
        if let Some(mount) = &self.mount {
            fmt_activity(f, "this mount", mount)?;
        }
        fmt_activity(f, "all mounts", &self.life)
    }
}

impl VolumeReport {
    fn fmt_space(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (space, segments) = (&self.space, &self.segments);
        let size = |blocks: u64| Human(blocks.saturating_mul(space.block_bytes));
        let (total, free) = (space.total_blocks, space.free_blocks);
        let files = space.files;
        writeln!(f, "  space       {} free of {}; {files} inode numbers", size(free), size(total))?;
        writeln!(
            f,
            "  segments    {} of {}: {} clean, {} open, {} sealed, {} drained, {} bad, {} placed",
            segments.count(),
            size(segments.blocks.into()),
            segments.clean,
            segments.open,
            segments.sealed,
            segments.drained,
            segments.bad,
            segments.placed
        )
    }

    fn fmt_errors(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(on_error) = &self.on_error {
            writeln!(f, "  on damage   {}", plain(on_error))?;
        }
        if self.has_failed {
            writeln!(f, "  stopped     nothing is written any more")?;
        }
        if let Some(failure) = &self.failure {
            writeln!(f, "  failure     {failure}; run sfs-fsck")?;
        }
        for error in &self.errors {
            writeln!(f, "  errors      {error}")?;
        }
        Ok(())
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

/// Replaces control characters: a volume may be forged, and a daemon another user's.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_control_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\n\u{9b}"), "a?[2Jb??");
    }
}
