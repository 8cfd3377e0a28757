//! Conversion of panics into error values.
//!
//! A panic hook stores the message of a panic inside [`catch`] and prints nothing. All other panics go to the
//! default hook.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Calls `work` and catches a panic.
///
/// # Errors
///
/// The message of the panic with its source location.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| match CATCHING.get() {
            true => MESSAGE.set(describe(info)),
            false => default(info),
        }));
    });
    CATCHING.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(false);
    outcome.map_err(|_| MESSAGE.take())
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
    fn a_caught_panic_is_returned_with_its_location() {
        assert_eq!(catch(|| 7), Ok(7));
        let message = catch(|| panic!("no {}", "more")).expect_err("the call panics");
        assert!(message.starts_with("no more (") && message.contains("panics.rs"), "{message}");
    }
}
