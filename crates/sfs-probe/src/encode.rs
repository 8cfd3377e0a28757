//! Characters of labels for udev. Names of links are encoded as libblkid does: mount(8) encodes `LABEL=` in the same way and looks
//! for that name in /dev/disk/by-label. The text for people has fewer characters than libblkid allows: no quotes, for example.

use std::fmt::Write as _;

/// Characters besides letters and digits that are never replaced.
const PLAIN: &str = "#+-.:=@_";

/// Characters that udev allows in a property besides [`PLAIN`].
const ALLOWED_IN_PROPERTY: &str = "/ $%?,";

/// Returns `label` for `ID_FS_LABEL`, for people: a character that udev does not allow becomes `_`, and so does each run
/// of white space; white space at both ends is left out.
pub fn safe(label: &str) -> String {
    let words: Vec<&str> = label.split(is_space).filter(|word| !word.is_empty()).collect();
    let joined = words.join("_");
    let mut text = String::with_capacity(joined.len());
    let mut rest = joined.as_str();
    while let Some(c) = rest.chars().next() {
        // Text that is encoded already stays as it is.
        let is_encoded = rest.starts_with("\\x")
            && rest.as_bytes().get(2..4).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let len = if is_encoded { 4 } else { c.len_utf8() };
        let stays = is_encoded || is_plain(c) || ALLOWED_IN_PROPERTY.contains(c);
        text.push_str(if stays { &rest[..len] } else { "_" });
        rest = &rest[len..];
    }
    text
}

/// Returns `label` for `ID_FS_LABEL_ENC` and the name of a link: each byte of a character that is not plain becomes
/// `\x` and two digits.
pub fn encoded(label: &str) -> String {
    let mut text = String::with_capacity(label.len());
    for c in label.chars() {
        if is_plain(c) {
            text.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns whether libblkid leaves `c` alone: letters, digits, [`PLAIN`], and valid characters of several bytes.
fn is_plain(c: char) -> bool {
    let is_noncharacter = ('\u{fdd0}'..='\u{fdef}').contains(&c) || u32::from(c) & 0xffff == 0xffff;
    c.is_ascii_alphanumeric() || PLAIN.contains(c) || !c.is_ascii() && !is_noncharacter
}

/// Returns whether isspace(3) counts `c`, in the C locale.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_leave_their_directory_or_line() {
        assert_eq!(encoded("../../sda"), "..\\x2f..\\x2fsda");
        assert_eq!(encoded("a \"$x`\n"), "a\\x20\\x22\\x24x\\x60\\x0a");
        assert_eq!(safe("  a\n b\"c' "), "a_b_c_");
        assert_eq!(safe("\\x2f\\xzz"), "\\x2f_xzz");
        assert_eq!(encoded("Gerät \u{ffff}"), "Gerät\\x20\\xef\\xbf\\xbf");
    }
}
