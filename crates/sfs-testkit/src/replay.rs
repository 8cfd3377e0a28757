//! Seeds and counts from the environment, and the command that repeats a failure.

/// Returns the number in the environment variable `name`, or `default` if the variable is not set.
///
/// # Panics
///
/// If the variable is not a number.
pub fn number_from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// Prints the command that repeats a test, when dropped during a panic.
pub struct Replay {
    /// Package, target and name of the test, as `cargo test` takes them.
    pub test: &'static str,
    /// Value of `SFS_SEED`.
    pub seed: u64,
    /// Value of `SFS_STEPS`.
    pub steps: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { test, seed, steps } = self;
            eprintln!("replay: SFS_SEED={seed} SFS_STEPS={steps} cargo test {test}");
        }
    }
}
