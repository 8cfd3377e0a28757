//! Completions for bash, zsh and fish.

use clap_complete::Shell;

use crate::{GeneratedFile, programs};

/// Returns the completions of every program for every shell.
pub fn completions() -> Vec<GeneratedFile> {
    let mut files = Vec::new();
    for program in programs() {
        let name = program.get_name().to_owned();
        let places = [
            (Shell::Bash, format!("bash-completion/completions/{name}")),
            (Shell::Zsh, format!("zsh/vendor-completions/_{name}")),
            (Shell::Fish, format!("fish/vendor_completions.d/{name}.fish")),
        ];
        for (shell, path) in places {
            let mut bytes = Vec::new();
            clap_complete::generate(shell, &mut program.clone(), name.clone(), &mut bytes);
            let text = String::from_utf8(bytes).expect("clap writes UTF-8");
            files.push(GeneratedFile { path, text });
        }
    }
    files
}
