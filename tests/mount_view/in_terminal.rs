//! A program in a terminal that script(1) makes: its keys and its output.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;
use sfs_testkit::wait_until;

use crate::harness::Mount;

/// The environment of a terminal with all that the view can use.
const TERMINAL: [(&str, &str); 3] =
    [("TERM", "xterm-256color"), ("LANG", "C.UTF-8"), ("COLORTERM", "truecolor")];

/// `sfs-ctl top` in a terminal that script(1) makes.
pub(crate) struct InTerminal {
    script: Child,
    /// File with everything that the program has written to its terminal.
    shown: PathBuf,
    pub(crate) program: Pid,
}

impl InTerminal {
    pub(crate) fn start(mount: &Mount, scratch: &Path, name: &str) -> Self {
        let (shown, number) =
            (scratch.join(format!("{name}.shown")), scratch.join(format!("{name}.pid")));
        let line = format!(
            "stty rows 24 cols 80; echo $$ > '{}'; exec '{}' top --interval 0.2 '{}'",
            number.display(),
            env!("CARGO_BIN_EXE_sfs-ctl"),
            mount.dir.display()
        );
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--flush", "--command", &line]).arg(&shown);
        command.envs(TERMINAL).env_remove("NO_COLOR").env_remove("LC_ALL").env("SHELL", "/bin/sh");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let script = command.spawn().expect("script(1) of bsdutils runs");
        let mut program = None;
        wait_until("the program has begun", || {
            let text = fs::read_to_string(&number).unwrap_or_default();
            program = text.trim().parse().ok().and_then(Pid::from_raw);
            program.is_some()
        });
        let this = Self { script, shown, program: program.expect("a process") };
        wait_until("the alternate screen", || this.text().contains("\u{1b}[?1049h"));
        this
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.shown).unwrap_or_default()).into_owned()
    }

    /// Waits until `part` is on the screen.
    pub(crate) fn wait_for(&self, part: &str) {
        wait_until(part, || screen(&self.text()).iter().any(|line| line.contains(part)));
    }

    pub(crate) fn press(&mut self, keys: &str) {
        let input = self.script.stdin.as_mut().expect("the input of script");
        input
            .write_all(keys.as_bytes())
            .and_then(|()| input.flush())
            .expect("the terminal takes keys");
    }

    /// Waits for the end; returns the exit status, and what followed the end of the alternate screen.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        // Waiting closes the input of a child, which ends the program as Ctrl-D does.
        let input = self.script.stdin.take();
        let status = self.script.wait().expect("script ends");
        drop(input);
        let text = self.text();
        let (_, rest) = text.rsplit_once("\u{1b}[?1049l").expect("the terminal is restored");
        assert!(rest.contains("\u{1b}[?25h"), "the cursor is shown again: {rest:?}");
        (status.code(), rest.to_owned())
    }
}

/// Number of lines and columns of the terminal.
const SIZE: (usize, usize) = (24, 80);

/// Returns the lines of the screen after the output `text`: moves of the cursor, erasing of the screen, and characters.
fn screen(text: &str) -> Vec<String> {
    let mut cells = vec![vec![' '; SIZE.1]; SIZE.0];
    let (mut row, mut column) = (0, 0);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => {
                // Of other sequences than CSI the character after the escape is enough.
                if rest.next() != Some('[') {
                    continue;
                }
                let mut parameters = String::new();
                let end = rest.by_ref().find(|c| {
                    let is_end = ('@'..='~').contains(c);
                    parameters.extend((!is_end).then_some(*c));
                    is_end
                });
                match end {
                    Some('H') => {
                        let mut numbers =
                            parameters.split(';').map(|number| number.parse().unwrap_or(1));
                        row = numbers.next().unwrap_or(1_usize).saturating_sub(1);
                        column = numbers.next().unwrap_or(1_usize).saturating_sub(1);
                    }
                    Some('J') => cells.iter_mut().for_each(|line| line.fill(' ')),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            c => {
                if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                    *cell = c;
                }
                column += 1;
            }
        }
    }
    cells.into_iter().map(String::from_iter).collect()
}
