//! Check that the table of locks in the core names every lock.

use anyhow::{Result, ensure};

/// Types whose fields are locks.
const LOCKS: [&str; 2] = ["Mutex<", "RwLock<"];

/// Returns the locks that `text` declares: `Struct::field`, or `Struct` if the field has no name.
pub(super) fn declared(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut owner = "";
    for line in text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
        if line.starts_with("mod tests") {
            break;
        }
        let (head, rest) = line.split_once("struct ").unwrap_or(("fn", ""));
        let is_struct = head.is_empty() || head.starts_with("pub");
        if is_struct {
            owner = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
        }
        let names_lock = |text: &str| {
            LOCKS.iter().any(|lock| text.split(lock).count() > 1 && !text.contains("Guard<"))
        };
        let field = line.split_once(": ").filter(|(name, kind)| {
            name.split(' ').all(|word| !["fn", "let", "impl"].contains(&word)) && names_lock(kind)
        });
        match field {
            _ if is_struct && names_lock(rest) => found.push(owner.to_owned()),
            Some((name, _)) if !name.contains(['(', '=']) || name.starts_with("pub(") => {
                let name = name.rsplit(' ').next().unwrap_or(name);
                found.push(format!("{owner}::{name}"));
            }
            _ => {}
        }
    }
    found
}

/// Succeeds if `table` names every lock of `text`.
pub(super) fn check(table: &str, text: &str) -> Result<()> {
    let missing: Vec<String> =
        declared(text).into_iter().filter(|lock| !table.contains(&format!("`{lock}`"))).collect();
    ensure!(missing.is_empty(), "the table of locks does not name {}", missing.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_fields_of_structs() {
        let text = "pub(crate) struct Store {\n    /// A lock.\n    pub(crate) nodes: RwLock<Nodes>,\n    count: u64,\n}\n\
                    struct Queue(Mutex<Vec<u64>>);\nimpl Queue {\n    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {}\n}\n\
                    struct Pool {\n    classes: [Mutex<Class>; 3],\n}\nmod tests {\n    x: Mutex<u8>,";
        assert_eq!(declared(text), ["Store::nodes", "Queue", "Pool::classes"]);
    }

    #[test]
    fn a_lock_without_a_row_fails() {
        let text = "struct A {\n    b: Mutex<u8>,\n}";
        check("| 1 | `A::b` |", text).unwrap();
        assert!(check("| 1 | `A::c` |", text).is_err());
    }
}
