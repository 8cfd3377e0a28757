//! The program that writes the pages. The test also makes cargo build it, for the Debian package that CI makes.

use std::fs;
use std::process::Command;

#[test]
fn the_program_writes_every_file() {
    let out = std::env::temp_dir().join(format!("sfs-manuals-{}", std::process::id()));
    let status = Command::new(env!("CARGO_BIN_EXE_sfs-manuals")).arg(&out).status();
    assert!(status.expect("the program runs").success());
    for file in sfs_manuals::pages().into_iter().chain(sfs_manuals::completions()) {
        let written = fs::read_to_string(out.join(&file.path)).expect(&file.path);
        assert_eq!(written, file.text, "{}", file.path);
    }
    fs::remove_dir_all(out).expect("the directory is removed");
}
