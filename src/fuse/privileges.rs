//! Privileges of the process that sent a request, as far as the kernel does not check them itself.

use std::fs;

/// Number of CAP_FSETID in capabilities(7).
const CAP_FSETID: u32 = 4;

/// Number of CAP_SYS_ADMIN in capabilities(7).
const CAP_SYS_ADMIN: u32 = 21;

/// Number of CAP_LINUX_IMMUTABLE in capabilities(7).
const CAP_LINUX_IMMUTABLE: u32 = 9;

/// Returns whether the process, or thread, `pid` has CAP_SYS_ADMIN in the user namespace of this
/// process; `false` if the status of the process cannot be read.
pub(super) fn is_admin(pid: u32) -> bool {
    has_capability(pid, CAP_SYS_ADMIN)
}

/// Returns whether the process, or thread, `pid` may make files immutable, as [`is_admin`] does.
pub(super) fn may_make_immutable(pid: u32) -> bool {
    has_capability(pid, CAP_LINUX_IMMUTABLE)
}

/// Returns whether the process, or thread, `pid` may change a file without clearing its suid and sgid; `false` if the
/// status of the process cannot be read.
pub(super) fn may_keep_setid(pid: u32) -> bool {
    has_capability(pid, CAP_FSETID)
}

fn has_capability(pid: u32, number: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    let capabilities = status.ok().and_then(|status| effective_capabilities(&status));
    capabilities.is_some_and(|capabilities| capabilities & 1 << number != 0)
        && is_in_own_namespace(pid)
}

/// Returns the effective capabilities in the content of `/proc/PID/status`.
fn effective_capabilities(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(value.trim(), 16).ok()
}

/// Returns whether process `pid` is in the user namespace of this process. Capabilities in another
/// namespace do not count for this filesystem.
fn is_in_own_namespace(pid: u32) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    match (namespace(&pid.to_string()), namespace("self")) {
        (Some(theirs), Some(own)) => theirs == own,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let status = "Name:\tcat\nCapPrm:\t0000000000000000\nCapEff:\t0000000000200000\n";
        assert_eq!(effective_capabilities(status), Some(1 << CAP_SYS_ADMIN));
        let without = "CapPrm:\tffffffffffffffff\nCapEff:\t000001ffffdfffff\n";
        assert_eq!(effective_capabilities(without), Some(0x1ff_ffdf_ffff));
        assert_eq!(effective_capabilities("Name:\tcat\n"), None);
        let own = fs::read_to_string("/proc/self/status").expect("a status");
        assert!(effective_capabilities(&own).is_some());
        assert!(is_in_own_namespace(std::process::id()) && !is_in_own_namespace(u32::MAX));
    }
}
