//! Panics as values.
//!
//! Owns: the hook that remembers what a panic said.
//! Promises: a panic inside [`catch`] prints nothing; any other prints as ever.
//! Never: swallows what was not asked for.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Does `work`; if it panics, gives the message and where it came from.
///
/// # Errors
///
/// What the panic said.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| match CATCHING.get() {
            true => SAID.set(describe(info)),
            false => default(info),
        }));
    });
    CATCHING.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(false);
    outcome.map_err(|_| SAID.take())
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let message = match payload.downcast_ref::<String>() {
        Some(message) => message,
        None => payload.downcast_ref::<&str>().copied().unwrap_or("no message"),
    };
    match info.location() {
        Some(at) => format!("{message:.400} ({}:{})", at.file(), at.line()),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_value() {
        assert_eq!(catch(|| 7), Ok(7));
        let said = catch(|| panic!("no {}", "more")).expect_err("it panics");
        assert!(said.starts_with("no more (") && said.contains("panics.rs"), "{said}");
    }
}
