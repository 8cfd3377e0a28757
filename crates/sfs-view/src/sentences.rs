//! The state of a volume in plain sentences, for readers who have never seen SFS.

use crate::model::{Finding, Heat, Numbers};
use crate::numbers::{bytes, factor, percent, plain};
use crate::rates::Rates;

/// Severity of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Good,
    Warning,
    Bad,
}

/// Share of the files' writes below which a file is not named.
const SHARE_MIN: f64 = 0.01;

impl Level {
    /// Returns the word for the level.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Good => "GOOD",
            Self::Warning => "WARNING",
            Self::Bad => "FAILING",
        }
    }
}

/// Returns what the program found, the worst first: from the report on health, or from the recorded errors if the daemon
/// gives none.
pub(crate) fn findings(numbers: &Numbers) -> Vec<Finding> {
    if let Some(health) = &numbers.health {
        return health.findings.clone();
    }
    let device = plain(&numbers.device);
    let remedy = format!("Unmount the volume, and run 'sfs-fsck -n --data {device}'.");
    let mut found = Vec::new();
    let mut add = |kind: &str, count, sentence: String| {
        let kind = serde_json::Value::from(kind);
        found.push(Finding { kind, count, sentence, remedy: remedy.clone() });
    };
    if numbers.has_failed || numbers.failure.is_some() {
        add("stopped", 1, "An error ended writing to this volume.".into());
    }
    for error in &numbers.errors {
        let kind = plain(error.kind.as_str().unwrap_or("unknown"));
        let sentence = format!("Errors of the kind '{kind}' were recorded.");
        add(&kind, error.count, sentence);
    }
    found
}

/// Returns the health of the volume.
pub(crate) fn health(numbers: &Numbers) -> (Level, String) {
    let findings = findings(numbers);
    let level = match numbers.health.as_ref().map(|health| health.state.as_str()) {
        Some("ok") => Level::Good,
        Some("warning") => Level::Warning,
        Some(_) => Level::Bad,
        None if numbers.has_failed || numbers.failure.is_some() => Level::Bad,
        None if !findings.is_empty() => Level::Warning,
        None => Level::Good,
    };
    let text = match findings.first() {
        None => "No errors were met on this volume.".to_owned(),
        Some(first) => {
            let more = match findings.len() - 1 {
                0 => String::new(),
                1 => " (and 1 more finding)".into(),
                count => format!(" (and {count} more findings)"),
            };
            format!("{}{more} {}", plain(&first.sentence), plain(&first.remedy))
        }
    };
    (level, text)
}

/// Returns the wear of the device: from the ledger, or from the bytes that all mounts have written if there is none.
pub(crate) fn wear(numbers: &Numbers) -> String {
    if let Some(wear) = numbers.wear.as_ref().filter(|wear| !wear.sentence.is_empty()) {
        return plain(&wear.sentence);
    }
    let size = numbers.segments.count() as f64
        * numbers.segments.blocks as f64
        * numbers.space.block_bytes as f64;
    let written = numbers.life.device_bytes() as f64;
    if size == 0.0 {
        return format!("{} have been written to the device.", bytes(written));
    }
    let times = written / size;
    let text = if times < 9.95 { format!("{times:.1}") } else { format!("{times:.0}") };
    format!(
        "{} have been written to the device since the volume was made: {text} times its size.",
        bytes(written)
    )
}

/// Returns the write amplification over the life of the volume.
pub(crate) fn amplification(numbers: &Numbers) -> Option<String> {
    let life = numbers.life.log_write_amplification?;
    Some(format!(
        "For each byte that programs wrote, {} bytes were written to the device.",
        factor(life)
    ))
}

/// Returns a verb for an operation of the FUSE protocol.
fn activity(operation: &str) -> &str {
    match operation {
        "write" => "writing",
        "read" => "reading",
        "fsync" | "syncfs" => "syncing",
        "lookup" | "getattr" | "readlink" | "statfs" => "looking up files",
        "readdir" => "listing directories",
        "create" | "mkdir" | "mknod" | "symlink" | "link" => "creating files",
        "unlink" | "rmdir" => "deleting files",
        "rename" => "renaming files",
        "open" | "release" | "forget" => "opening and closing files",
        "setattr" | "setxattr" | "removexattr" => "changing attributes",
        "getxattr" | "listxattr" => "reading attributes",
        "fallocate" | "copy_file_range" => "allocating and copying",
        _ => "other requests",
    }
}

/// Returns what the volume is busy with now.
pub(crate) fn busy(rates: &Rates) -> String {
    let mut shares: Vec<(&str, f64)> = Vec::new();
    for operation in &rates.operations {
        let name = activity(&operation.name);
        match shares.iter_mut().find(|(known, _)| *known == name) {
            Some((_, share)) => *share += operation.busy_share,
            None => shares.push((name, operation.busy_share)),
        }
    }
    shares.retain(|(_, share)| *share > 0.0);
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let cleaning = match rates.cleaning_bytes {
        moved if moved >= 1.0 => format!(" Cleaning: {}/s.", bytes(moved)),
        _ => String::new(),
    };
    let text = match shares.as_slice() {
        [] if rates.device_bytes >= 1.0 => {
            format!("No requests; {}/s go to the device.", bytes(rates.device_bytes))
        }
        [] => "Nothing: no program has used the volume just now.".into(),
        [(first, share), (second, less), ..] if *less >= 0.1 => {
            let (share, less) = (percent(*share), percent(*less));
            format!("Mostly {first} ({share} of the time), {second} ({less}).")
        }
        [(first, share), ..] => format!("Mostly {first} ({} of the time).", percent(*share)),
    };
    text + &cleaning
}

/// Returns the files that were written most, as many as are worth naming; `None` if none is known.
pub(crate) fn files(heat: &Heat, count_max: usize) -> Option<String> {
    let all = heat.written_bytes.max(1) as f64;
    let share = |written: u64| written as f64 / all;
    let named: Vec<String> = heat
        .most_written_files
        .iter()
        .filter(|file| share(file.written_bytes) >= SHARE_MIN)
        .take(count_max)
        .map(|file| format!("{} ({})", plain(&file.name()), percent(share(file.written_bytes))))
        .collect();
    (!named.is_empty()).then(|| named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read;
    use crate::rates::OperationRate;

    #[test]
    fn health_is_good_until_something_was_found() {
        let numbers: Numbers = read(r#"{"device":"/dev/x"}"#).expect("JSON");
        assert_eq!(health(&numbers), (Level::Good, "No errors were met on this volume.".into()));
        let text = r#"{"device":"/dev/x\u001b","errors":[{"kind":"data","count":3}]}"#;
        let (level, sentence) = health(&read(text).expect("JSON"));
        assert_eq!(level, Level::Warning);
        assert_eq!(
            sentence,
            "Errors of the kind 'data' were recorded. Unmount the volume, and run 'sfs-fsck -n --data /dev/x?'."
        );
        let text = r#"{"has_failed":true,"errors":[{"kind":"write","count":1}]}"#;
        let (level, sentence) = health(&read(text).expect("JSON"));
        assert_eq!(level, Level::Bad);
        assert!(
            sentence.starts_with("An error ended writing to this volume. (and 1 more finding)")
        );
        let text = r#"{"health":{"state":"warning","findings":[{"kind":"slow","count":2,
            "sentence":"Writes take long.","remedy":"Copy what matters."}]}}"#;
        let found = health(&read(text).expect("JSON"));
        assert_eq!(found, (Level::Warning, "Writes take long. Copy what matters.".into()));
    }

    #[test]
    fn wear_comes_from_the_ledger_or_from_the_counters() {
        let text = r#"{"segments":{"blocks":256,"clean":10,"sealed":90},"space":{"block_bytes":4096},
            "life":{"counters":{"device_bytes_written":314572800}}}"#;
        let numbers: Numbers = read(text).expect("JSON");
        assert_eq!(
            wear(&numbers),
            "300 MiB have been written to the device since the volume was made: 3.0 times its size."
        );
        let text = r#"{"wear":{"sentence":"This card has been written 3.1 times over."}}"#;
        let numbers: Numbers = read(text).expect("JSON");
        assert_eq!(wear(&numbers), "This card has been written 3.1 times over.");
    }

    #[test]
    fn the_busiest_operations_are_named_in_plain_words() {
        let rate = |name: &str, busy_share| OperationRate {
            name: name.into(),
            busy_share,
            ..OperationRate::default()
        };
        let mut rates = Rates::default();
        assert!(busy(&rates).starts_with("Nothing"));
        rates.operations = vec![
            rate("lookup", 0.05),
            rate("write", 0.6),
            rate("fsync", 0.2),
            rate("syncfs", 0.15),
        ];
        assert_eq!(busy(&rates), "Mostly writing (60 % of the time), syncing (35 %).");
        rates.cleaning_bytes = 2048.0;
        assert!(busy(&rates).ends_with(" Cleaning: 2 KiB/s."));
    }

    #[test]
    fn files_are_named_with_their_share() {
        let text = r#"{"written_bytes":1000,"most_written_files":[
            {"inode":17,"path":"/a\u001bb","written_bytes":600},{"inode":18,"written_bytes":300},
            {"inode":19,"path":"/c","written_bytes":5}]}"#;
        let heat: Heat = read(text).expect("JSON");
        assert_eq!(files(&heat, 5).as_deref(), Some("/a?b (60 %), inode 18 (30 %)"));
        assert_eq!(files(&Heat::default(), 5), None);
    }
}
