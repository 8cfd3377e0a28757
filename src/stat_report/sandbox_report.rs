//! The limits of the daemon, for reports.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sandbox::Limits;

/// Limits that hold for the daemon of a mount; all are `false` with `nosandbox`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxReport {
    /// `true` if the mount asked for the limits: it has not the option `nosandbox`.
    pub wanted: bool,
    /// `true` if the daemon has given its capabilities up.
    pub capabilities: bool,
    /// `true` if no program that the daemon might run gains privileges.
    pub no_new_privileges: bool,
    /// `true` if the kernel refuses all files but those that the daemon needs (Landlock).
    pub files: bool,
    /// `true` if the kernel refuses all system calls but those that the daemon needs (seccomp).
    pub system_calls: bool,
}

impl From<Option<Limits>> for SandboxReport {
    fn from(limits: Option<Limits>) -> Self {
        let wanted = limits.is_some();
        let none = Limits {
            capabilities: false,
            no_new_privileges: false,
            files: false,
            system_calls: false,
        };
        let Limits { capabilities, no_new_privileges, files, system_calls } =
            limits.unwrap_or(none);
        Self { wanted, capabilities, no_new_privileges, files, system_calls }
    }
}

/// Prints which limits hold, and which do not.
impl fmt::Display for SandboxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.wanted {
            return f.write_str("off");
        }
        let all = [
            ("capabilities", self.capabilities),
            ("no_new_privs", self.no_new_privileges),
            ("files", self.files),
            ("system calls", self.system_calls),
        ];
        let names = |holds: bool| {
            let chosen = all.iter().filter(|limit| limit.1 == holds).map(|limit| limit.0);
            chosen.collect::<Vec<_>>().join(", ")
        };
        match names(false).as_str() {
            "" => f.write_str("on"),
            missing => write!(f, "limits {}; not {missing}, which this system lacks", names(true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_limits_are_named() {
        assert_eq!(SandboxReport::from(None).to_string(), "off");
        let whole =
            Limits { capabilities: true, no_new_privileges: true, files: true, system_calls: true };
        assert_eq!(SandboxReport::from(Some(whole)).to_string(), "on");
        let old = SandboxReport::from(Some(Limits { files: false, ..whole }));
        let text =
            "limits capabilities, no_new_privs, system calls; not files, which this system lacks";
        assert_eq!(old.to_string(), text);
    }
}
