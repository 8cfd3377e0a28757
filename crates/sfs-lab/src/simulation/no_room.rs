//! The error of a simulation whose log cannot go on.

/// The log has no Clean segment for a head, or no segment whose cleaning would gain room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "the log ran out of clean segments; take more segments, a larger --reserve, or a smaller --buffer",
        )
    }
}

impl std::error::Error for NoRoom {}
