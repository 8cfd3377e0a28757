//! Version of the kernel, by the release that uname(2) states.

/// Returns the major version, the minor version and the patch level in `release`; a missing patch
/// level is 0. Returns `None` if the release does not begin with two numbers.
pub(crate) fn parse(release: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|no| no.parse().ok());
    Some((numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)))
}

/// Returns the release of the running kernel.
pub(crate) fn running() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_are_parsed() {
        assert_eq!(parse("6.12.43+deb13-amd64"), Some((6, 12, 43)));
        assert_eq!(parse("6.18-rc7"), Some((6, 18, 0)));
        assert_eq!(parse("5.15"), Some((5, 15, 0)));
        assert!(parse("").is_none() && parse("linux").is_none() && parse("6").is_none());
        assert!(parse(&running()).is_some(), "{}", running());
    }
}
