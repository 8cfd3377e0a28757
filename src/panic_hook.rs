//! The panic hook: a panic in any thread ends the process at once.
//!
//! A panic shows a defect, after which nothing in memory can be trusted. The log states the place of the
//! panic and the remedy. Data that was synced is on the device, as after a power cut, and no request waits
//! for a thread that is gone. With `-o survive` the monitor starts another process, which trusts the records alone.

use std::panic;

/// Remedy for a mount that has ended.
const ENDED: &str =
    "the mount has ended, and synced data is on the volume; unmount, and mount again";

/// Remedy for a mount that survives its daemon: it needs none.
const SURVIVES: &str = "the daemon has ended, and its monitor starts it again";

/// Makes the process, which serves `device`, abort on a panic. Its mount may survive that.
pub(crate) fn end_the_process(device: String, survives: bool) {
    let remedy = if survives { SURVIVES } else { ENDED };
    let shown = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        shown(info);
        let what = info.to_string().replace('\n', " ");
        tracing::error!("{device}: a defect in sfs: {what}; {remedy}");
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    const CHILD: &str = "SFS_TEST_PANICS";

    #[test]
    fn a_panic_in_any_thread_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            crate::logging::to_terminal(false);
            super::end_the_process("/dev/sdX".into(), false);
            let thread = std::thread::spawn(|| panic!("the blocks were\nfree"));
            let _ = thread.join();
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let mut child = Command::new(std::env::current_exe().expect("the test has a path"));
        let test = "panic_hook::tests::a_panic_in_any_thread_ends_the_process";
        let output = child.args(["--exact", test, "--nocapture"]).env(CHILD, "1").output();
        let output = output.expect("the program runs");
        assert_eq!(output.status.signal(), Some(nix::libc::SIGABRT), "{output:?}");
        let log = String::from_utf8_lossy(&output.stderr);
        let says = |line: &str| {
            line.contains("/dev/sdX: a defect in sfs: panicked at src/panic_hook.rs")
                && line.contains("the blocks were free; the mount has ended")
        };
        assert!(log.lines().any(says), "{log}");
    }
}
