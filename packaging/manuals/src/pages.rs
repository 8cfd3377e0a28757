//! Pages of section 8: one for each program and command, with its exit statuses.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::options_page::options_page;
use crate::{GeneratedFile, programs};

/// Names under which mount(8), mkfs(8) and fsck(8) run the programs.
const HELPERS: [(&str, &str); 7] = [
    ("mount.sfs", "sfs-mount"),
    ("mount.fuse.sfs", "sfs-mount"),
    ("mount.fuseblk.sfs", "sfs-mount"),
    ("umount.sfs", "sfs-umount"),
    ("umount.fuse.sfs", "sfs-umount"),
    ("mkfs.sfs", "sfs-mkfs"),
    ("fsck.sfs", "sfs-fsck"),
];

/// Exit statuses: program, number, meaning.
const STATUSES: &str = include_str!("../../../docs/promises/exit-statuses.txt");

const SOURCE: &str = concat!("SFS ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "SFS";

/// Returns all pages: those of the programs and their commands, sfs(5), and pages that refer to another page for the
/// helpers.
pub fn pages() -> Vec<GeneratedFile> {
    let mut files = Vec::new();
    for program in programs() {
        let name = program.get_name().to_owned();
        // The help of sfs-mount ends with the mount options, which have a page of their own.
        let program = if name == "sfs-mount" { program.after_help("") } else { program };
        let mut program = program.disable_help_subcommand(true);
        program.build();
        add(&program, &name, &mut files);
    }
    for (helper, program) in HELPERS {
        let text = format!(".so man8/{program}.8\n");
        files.push(GeneratedFile { path: format!("man/man8/{helper}.8"), text });
    }
    files.push(GeneratedFile { path: "man/man5/sfs.5".into(), text: options_page() });
    files
}

/// Adds the page `name` of a command, and those of its commands.
fn add(command: &Command, name: &str, files: &mut Vec<GeneratedFile>) {
    let path = format!("man/man8/{name}.8");
    files.push(GeneratedFile { path, text: page(command, name) });
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(below, &format!("{name}-{}", below.get_name()), files);
    }
}

fn page(command: &Command, name: &str) -> String {
    let man = Man::new(command.clone().display_name(name.to_owned()))
        .title(name.to_owned())
        .section("8")
        .date("")
        .source(SOURCE)
        .manual(MANUAL);
    let mut bytes = Vec::new();
    let has_options = command.get_arguments().any(|argument| !argument.is_hide_set());
    let has_commands = command.get_subcommands().any(|below| !below.is_hide_set());
    let has_more = command.get_after_help().is_some_and(|text| !text.to_string().is_empty());
    let rendered = (|| {
        man.render_title(&mut bytes)?;
        man.render_name_section(&mut bytes)?;
        man.render_synopsis_section(&mut bytes)?;
        man.render_description_section(&mut bytes)?;
        if has_options {
            man.render_options_section(&mut bytes)?;
        }
        if has_commands {
            man.render_subcommands_section(&mut bytes)?;
        }
        if has_more {
            man.render_extra_section(&mut bytes)?;
        }
        statuses(name).to_writer(&mut bytes)?;
        see_also(name).to_writer(&mut bytes)
    })();
    rendered.expect("memory can be written");
    String::from_utf8(bytes).expect("clap writes UTF-8")
}

/// Returns the section with the exit statuses of the program to which the page `name` belongs.
fn statuses(name: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for line in STATUSES.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.splitn(3, ' ');
        let (Some(program), Some(status), Some(meaning)) =
            (words.next(), words.next(), words.next())
        else {
            panic!("docs/promises/exit-statuses.txt: {line}");
        };
        let is_own = name == program || name.strip_prefix(program).is_some_and(is_command);
        if is_own {
            roff.control("TP", []);
            roff.text([bold(status)]);
            roff.text([roman(meaning)]);
        }
    }
    roff
}

fn is_command(rest: &str) -> bool {
    rest.starts_with('-')
}

fn see_also(name: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let names = programs().into_iter().map(|program| format!("{}(8)", program.get_name()));
    let others: Vec<String> = names
        .filter(|other| *other != format!("{name}(8)"))
        .chain(["sfs(5)".to_owned(), "fstab(5)".to_owned(), "mount(8)".to_owned()])
        .collect();
    roff.text([roman(others.join(", "))]);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completions;

    /// Calls `check` with every visible command, its page's name, and its program.
    fn each(command: &Command, name: &str, check: &mut impl FnMut(&Command, &str)) {
        check(command, name);
        for below in command.get_subcommands() {
            each(below, &format!("{name}-{}", below.get_name()), check);
        }
    }

    #[test]
    fn every_option_of_every_command_is_in_its_page_and_in_the_completions() {
        let (pages, completions) = (pages(), completions());
        let mut options = 0;
        for program in programs() {
            let program_name = program.get_name().to_owned();
            let of_program: Vec<&GeneratedFile> = completions
                .iter()
                .filter(|file| {
                    let name = file.path.rsplit('/').next().unwrap_or_default();
                    name.trim_start_matches('_').trim_end_matches(".fish") == program_name
                })
                .collect();
            assert_eq!(of_program.len(), 3, "{program_name}: bash, zsh and fish");
            each(&program, &program_name, &mut |command, name| {
                let path = format!("man/man8/{name}.8");
                let page = pages.iter().find(|page| page.path == path).expect("a page");
                for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
                    let Some(long) = option.get_long() else { continue };
                    options += 1;
                    let escaped = format!("\\-\\-{}", long.replace('-', "\\-"));
                    assert!(page.text.contains(&escaped), "{path}: {escaped}");
                    for file in &of_program {
                        // fish lists the name after `-l`.
                        let is_listed = file.text.contains(&format!("--{long}"))
                            || file.text.contains(&format!("-l {long}"));
                        assert!(is_listed, "{}: --{long}", file.path);
                    }
                }
            });
        }
        assert!(options > 60, "{options}");
    }

    #[test]
    fn every_page_has_statuses_and_no_line_that_roff_would_read_as_a_request() {
        for page in pages() {
            if page.path.starts_with("man/man8/sfs-") {
                let status = page.text.find("EXIT STATUS").expect("statuses");
                assert!(page.text[status..].contains("\\fB0\\fR"), "{}", page.path);
            }
            for line in page.text.lines().filter(|line| line.starts_with(['.', '\''])) {
                let request = line[1..].split(' ').next().unwrap_or_default();
                let known = [
                    "TH", "SH", "SS", "TP", "IP", "PP", "RS", "RE", "so", "ie", "el", "br", "nf",
                    "fi", "\\\"",
                ];
                assert!(known.contains(&request), "{}: {line}", page.path);
            }
        }
    }
}
