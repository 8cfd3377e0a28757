//! The files of the AWS tools: `~/.aws/credentials` and `~/.aws/config`, which `object_store` does not read.

use std::collections::HashMap;
use std::path::PathBuf;

/// Settings of one profile, by their lower-case keys.
pub(crate) type Profile = HashMap<String, String>;

/// Returns the profile that `AWS_PROFILE` names, or the default one, as both files have it. Credentials win over the configuration.
pub(crate) fn profile() -> Profile {
    let name = std::env::var("AWS_PROFILE").unwrap_or_else(|_| "default".into());
    let file = |variable: &str, name: &str| {
        let home = || std::env::home_dir().map(|home| home.join(".aws").join(name));
        let path = std::env::var_os(variable).map(PathBuf::from).or_else(home)?;
        std::fs::read_to_string(path).ok()
    };
    let mut profile = Profile::new();
    if let Some(text) = file("AWS_CONFIG_FILE", "config") {
        profile.extend(section(&text, &name));
        profile.extend(section(&text, &format!("profile {name}")));
    }
    if let Some(text) = file("AWS_SHARED_CREDENTIALS_FILE", "credentials") {
        profile.extend(section(&text, &name));
    }
    profile
}

/// Returns the settings of one section. Nested settings are left out.
fn section(text: &str, name: &str) -> Profile {
    let mut is_inside = false;
    let mut profile = Profile::new();
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_inside = title.trim() == name;
        } else if is_inside
            && !is_nested
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            profile.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_found_and_others_are_not() {
        let text = "# comment\n[default]\nregion = eu-1\n[ profile other ]\nregion=eu-2\n\
                    s3 =\n  max_concurrent_requests = 20\nAWS_Access_Key_Id = a=b \n[last]\n";
        assert_eq!(section(text, "default"), HashMap::from([("region".into(), "eu-1".into())]));
        let other = section(text, "profile other");
        assert_eq!(other.get("aws_access_key_id").map(String::as_str), Some("a=b"));
        assert_eq!(other.get("region").map(String::as_str), Some("eu-2"));
        assert_eq!(other.get("max_concurrent_requests"), None);
        assert!(section(text, "last").is_empty() && section(text, "none").is_empty());
    }
}
