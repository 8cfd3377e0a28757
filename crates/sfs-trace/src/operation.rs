//! Operations of a trace, and their names.

use std::fmt;
use std::str::FromStr;

use crate::error::LineError;

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Operation of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum TraceOperation {
            $($(#[$doc])* $variant,)*
        }

        impl TraceOperation {
            /// All operations.
            pub const ALL: &[TraceOperation] = &[$(Self::$variant),*];

            /// Returns the name in a trace.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

operations! {
    /// Reading data.
    Read = "read",
    /// Writing data.
    Write = "write",
    /// Changing the length to `offset`.
    Truncate = "truncate",
    /// Reserving space for a range.
    Allocate = "allocate",
    /// Making a hole of a range.
    Punch = "punch",
    /// Making a range read as zeros, and reserving its space.
    Zero = "zero",
    /// Copying `len` bytes to `offset` from the file `other`.
    Copy = "copy",
    /// Making a file durable.
    Fsync = "fsync",
    /// Making the data of a file durable.
    Fdatasync = "fdatasync",
    /// Making all files durable.
    Syncfs = "syncfs",
    /// Making a file, a symbolic link or a device node, in the directory `other`.
    Create = "create",
    /// Making a directory in the directory `other`.
    Mkdir = "mkdir",
    /// Adding a name in the directory `other`.
    Link = "link",
    /// Removing a name from the directory `other`; `len` names are left.
    Unlink = "unlink",
    /// Removing a directory from the directory `other`.
    Rmdir = "rmdir",
    /// Moving a name to the directory `other`.
    Rename = "rename",
    /// Changing other attributes than the length.
    Attributes = "attributes",
    /// Setting or removing an extended attribute.
    Setxattr = "setxattr",
    /// Reading extended attributes or their names.
    Getxattr = "getxattr",
    /// Opening a file.
    Open = "open",
    /// Closing a file.
    Release = "release",
    /// Finding a name in a directory; `other` is what was found.
    Lookup = "lookup",
    /// Reading attributes.
    Getattr = "getattr",
    /// Reading a directory.
    Readdir = "readdir",
    /// Any other request.
    Other = "other",
    /// No request: `len` requests were not recorded here, because the client was slow.
    Lost = "lost",
}

impl fmt::Display for TraceOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TraceOperation {
    type Err = LineError;

    fn from_str(name: &str) -> Result<Self, LineError> {
        let known = Self::ALL.iter().find(|operation| operation.name() == name);
        known.copied().ok_or(LineError::Operation)
    }
}
