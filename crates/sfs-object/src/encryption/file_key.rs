//! Key files: 32 bytes, or 64 hexadecimal digits and perhaps a line feed.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::Random;

const KEY_LEN: usize = 32;
/// Length of the longest key file.
const FILE_LEN_MAX: usize = 2 * KEY_LEN + 1;

/// The key in a key file, for any number of volumes. It is overwritten in memory when it is dropped.
#[derive(Clone)]
pub struct FileKey(pub(super) Zeroizing<[u8; KEY_LEN]>);

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read or made.
    #[error("{}: {error}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        error: io::Error,
    },
    /// Other users than the owner have access.
    #[error("{path}: other users may read or change this key; chmod 600 {path}", path = .0.display())]
    Open(PathBuf),
    /// The content is no key.
    #[error("{}: a key file has 32 bytes, or 64 hexadecimal digits", .0.display())]
    Content(PathBuf),
    /// A new key file would replace another file.
    #[error("{}: exists; a new key is written to a new file only", .0.display())]
    Exists(PathBuf),
}

impl FileKey {
    /// Returns a key that comes from elsewhere.
    pub fn new(key: [u8; KEY_LEN]) -> Self {
        Self(Zeroizing::new(key))
    }

    /// Reads the key in the file at `path`.
    ///
    /// # Errors
    ///
    /// [`KeyFileError`] if other users have access to the file, or if it has no key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let failed = |error| KeyFileError::File { path: path.to_owned(), error };
        let mut file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
            return Err(KeyFileError::Open(path.to_owned()));
        }
        // One more than the longest, so that longer files are noticed.
        let mut bytes = Zeroizing::new([0; FILE_LEN_MAX + 1]);
        let mut len = 0;
        while len < bytes.len() {
            match file.read(&mut bytes[len..]) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Self::decode(&bytes[..len]).ok_or_else(|| KeyFileError::Content(path.to_owned()))
    }

    /// Makes the file at `path` with a new key, durably, for its owner alone.
    ///
    /// # Errors
    ///
    /// [`KeyFileError::Exists`] if there is a file already.
    pub fn create(path: &Path, random: &Random) -> Result<Self, KeyFileError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => KeyFileError::Exists(path.to_owned()),
            _ => KeyFileError::File { path: path.to_owned(), error },
        };
        let mut key = Self(Zeroizing::new([0; KEY_LEN]));
        random(&mut *key.0);
        let mut text = Zeroizing::new([0; FILE_LEN_MAX]);
        for (digits, byte) in text.chunks_exact_mut(2).zip(key.0.iter()) {
            digits[0] = digit(byte >> 4);
            digits[1] = digit(byte & 15);
        }
        text[2 * KEY_LEN] = b'\n';
        let mut file =
            File::options().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        let written = file.write_all(&*text).and_then(|()| file.sync_all());
        let written = written.and_then(|()| match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        });
        written.map_err(failed)?;
        Ok(key)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut key = Self(Zeroizing::new([0; KEY_LEN]));
        if bytes.len() == KEY_LEN {
            key.0.copy_from_slice(bytes);
            return Some(key);
        }
        let digits = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if digits.len() != 2 * KEY_LEN {
            return None;
        }
        for (byte, digits) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(digits[0])? << 4 | value(digits[1])?;
        }
        Some(key)
    }
}

/// Does not show the key.
impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileKey")
    }
}

fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' + value - 10 }
}

fn value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key_file(dir: &Path, content: &[u8], mode: u32) -> PathBuf {
        let path = dir.join("key");
        fs::write(&path, content).expect("room");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("an own file");
        path
    }

    #[test]
    fn key_files_have_bytes_or_digits_and_one_reader() {
        let dir = tempfile::tempdir().expect("room");
        let digits = "0123456789abcdef0123456789ABCDEF".repeat(2);
        let expected = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].repeat(4);
        for content in [expected.clone(), digits.clone().into(), format!("{digits}\n").into()] {
            let key = FileKey::read(&key_file(dir.path(), &content, 0o400)).expect("a key");
            assert_eq!(key.0[..], expected);
            fs::remove_file(dir.path().join("key")).expect("a file");
        }
        for wrong in [vec![], vec![1; 31], vec![1; 33], digits[1..].into(), [b'g'; 64].into()] {
            let read = FileKey::read(&key_file(dir.path(), &wrong, 0o600));
            assert!(matches!(read, Err(KeyFileError::Content(_))), "{wrong:?}");
        }
        for wrong in [format!("{digits}\n\n"), format!("+{}", &digits[1..]), digits.repeat(99)] {
            let read = FileKey::read(&key_file(dir.path(), wrong.as_bytes(), 0o600));
            assert!(matches!(read, Err(KeyFileError::Content(_))), "{wrong}");
        }
        for mode in [0o640, 0o604, 0o620, 0o602, 0o601] {
            let read = FileKey::read(&key_file(dir.path(), &expected, mode));
            assert!(matches!(read, Err(KeyFileError::Open(_))), "{mode:o}");
        }
        let read = FileKey::read(&dir.path().join("other"));
        assert!(matches!(read, Err(KeyFileError::File { .. })));
    }

    #[test]
    fn a_new_key_file_is_read_again_and_replaces_nothing() {
        let dir = tempfile::tempdir().expect("room");
        let path = dir.path().join("key");
        let key = FileKey::create(&path, &super::super::system_random).expect("a key");
        assert_eq!(FileKey::read(&path).expect("a key").0, key.0);
        assert_ne!(*key.0, [0; KEY_LEN]);
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);
        let again = FileKey::create(&path, &super::super::system_random);
        assert!(matches!(again, Err(KeyFileError::Exists(_))));
        assert_eq!(FileKey::read(&path).expect("a key").0, key.0);
        assert_eq!(format!("{key:?}"), "FileKey");
    }
}
