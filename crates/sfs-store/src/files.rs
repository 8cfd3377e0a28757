//! The files that the program may open, by Landlock: a defect in the libraries of a provider, or a hostile server, reaches no others.
//!
//! For a `file:` URL these are the files below its directory, and no TCP connection can be made (Linux 6.7 and later). For a bucket files are only read: those of the
//! system that tell names, certificates and libraries, and those of the user with credentials. A kernel without Landlock limits nothing.

use std::env;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use rustix::fs::{Mode, OFlags, open};
use url::Url;

/// Directories of the system: configuration, libraries, certificates, and sockets of the resolver.
const SYSTEM: [&str; 9] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/run",
    "/nix/store",
    "/opt",
    "/var/lib/ca-certificates",
];

/// Directories below the home directory that have credentials.
const HOME: [&str; 4] = [".aws", ".azure", ".config/gcloud", ".ssl"];

/// Begin of the names of variables whose values may be paths of files: credentials, tokens, certificates.
const VARIABLES: [&str; 4] = ["AWS_", "AZURE_", "GOOGLE_", "SSL_CERT_"];

/// Forbids this thread, and those that it starts, to open other files than the store at `url` needs.
pub(crate) fn limit(url: &str) {
    // What cannot be limited is not: the store works as it does on a kernel without Landlock.
    let _ = limit_to(&needed(url), !url.starts_with("file:"));
}

/// Returns the files that the store at `url` needs, and what is done with them.
fn needed(url: &str) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
    if url.starts_with("file:") {
        let dir = Url::parse(url).ok().and_then(|url| url.to_file_path().ok());
        return dir.into_iter().map(|dir| (dir, AccessFs::from_all(ABI::V5))).collect();
    }
    let system = SYSTEM.map(PathBuf::from).into_iter();
    let home = env::home_dir().into_iter().flat_map(|home| HOME.map(|dir| home.join(dir)));
    let named = env::vars_os().filter_map(|(name, value)| {
        let is_named = VARIABLES.iter().any(|begin| name.to_string_lossy().starts_with(begin));
        let path = is_named.then(|| std::path::absolute(&value).ok())??;
        path.exists().then(|| with_successors(path))
    });
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    system.chain(home).chain(named).map(|path| (path, read)).collect()
}

/// Returns what has the file at `path`, and files that replace it: tokens are renewed so. That is its directory, unless much else is in there.
fn with_successors(path: PathBuf) -> PathBuf {
    let is_wide =
        |dir: &Path| dir.parent().is_none() || env::home_dir().is_some_and(|home| home == dir);
    match path.parent().filter(|dir| path.is_file() && !is_wide(dir)) {
        Some(dir) => dir.to_owned(),
        None => path,
    }
}

fn limit_to(
    needed: &[(PathBuf, BitFlags<AccessFs>)],
    connects: bool,
) -> Result<RulesetStatus, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))?;
    if !connects {
        rules = rules.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    let mut rules = rules.create()?;
    for (path, access) in needed {
        let Some((file, is_dir)) = opened(path) else { continue };
        let access = if is_dir { *access } else { *access & AccessFs::from_file(ABI::V5) };
        rules = rules.add_rule(PathBeneath::new(file, access))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

fn opened(path: &Path) -> Option<(OwnedFd, bool)> {
    let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    Some((file, path.is_dir()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A thread of its own is limited, and nothing else of the test.
    fn limited<T: Send>(url: &str, work: impl FnOnce() -> T + Send) -> Option<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let status = limit_to(&needed(url), !url.starts_with("file:"));
                (status.expect("rules") == RulesetStatus::FullyEnforced).then(work)
            });
            let found = thread.join().expect("no panic");
            if found.is_none() {
                println!("skipped: this kernel has no Landlock, or an older one");
            }
            found
        })
    }

    #[test]
    fn a_store_in_a_directory_has_its_files_and_no_others() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [dir, other] = ["objects", "other"].map(|name| scratch.path().join(name));
        fs::create_dir(&dir).expect("room");
        fs::write(&other, "secret").expect("room");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let tried = limited(&format!("file://{}", dir.display()), || {
            fs::create_dir(dir.join("log")).expect("below the directory");
            fs::write(dir.join("log/1#"), "object").expect("below the directory");
            fs::hard_link(dir.join("log/1#"), dir.join("log/1")).expect("below the directory");
            fs::remove_file(dir.join("log/1#")).expect("below the directory");
            assert_eq!(fs::read(dir.join("log/1")).expect("below the directory"), b"object");
            (
                fs::read(&other).is_ok(),
                fs::write(scratch.path().join("new"), "").is_ok(),
                fs::read("/etc/passwd").is_ok(),
                TcpStream::connect(address).is_ok(),
            )
        });
        assert!(tried.is_none_or(|tried| tried == (false, false, false, false)), "{tried:?}");
    }

    #[test]
    fn a_bucket_has_the_network_and_files_to_read() {
        let scratch = tempfile::tempdir().expect("a directory");
        let other = scratch.path().join("other");
        fs::write(&other, "secret").expect("room");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let tried = limited("s3://bucket/volume", || {
            TcpStream::connect(address).expect("the network");
            fs::read("/etc/passwd").expect("the configuration of the system");
            (fs::read(&other).is_ok(), fs::write(scratch.path().join("new"), "").is_ok())
        });
        assert!(tried.is_none_or(|tried| tried == (false, false)), "{tried:?}");
    }
}
