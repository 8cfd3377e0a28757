//! The state of a volume before the measurement: new, or aged and filled.

use std::{fmt, str::FromStr};

use anyhow::{Context as _, Result, bail};

/// State of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    New,
    /// Overwritten three times, and full up to so many percent.
    Used(u32),
}

impl FromStr for State {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        if name == "new" {
            return Ok(Self::New);
        }
        let percent = name.strip_prefix("used-").context("neither new nor used-PERCENT")?;
        let percent = percent.parse()?;
        if !(10..=95).contains(&percent) {
            bail!("used-{percent}: not from 10 to 95 percent");
        }
        Ok(Self::Used(percent))
    }
}

impl State {
    pub(super) fn percent(self) -> Option<u32> {
        match self {
            Self::New => None,
            Self::Used(percent) => Some(percent),
        }
    }

    /// Describes the state in a heading.
    pub(super) fn title(self) -> String {
        match self {
            Self::New => "new".to_owned(),
            Self::Used(percent) => format!("used, {percent}% full"),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => write!(f, "new"),
            Self::Used(percent) => write!(f, "used-{percent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_they_are_written() {
        for name in ["new", "used-60", "used-90"] {
            assert_eq!(name.parse::<State>().expect("a state").to_string(), name);
        }
        assert!("used-99".parse::<State>().is_err());
        assert!("old".parse::<State>().is_err());
    }
}
