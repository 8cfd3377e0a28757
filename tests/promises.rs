//! The promises of docs/promises.md: every line of the lists in docs/promises holds for the programs, and everything that the
//! programs have is in a list. A removal or a change of meaning is not repaired by editing a list.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;
#[expect(dead_code, reason = "the test of volumes in object stores uses all of it")]
#[path = "mount_object/machine.rs"]
mod machine;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::{CommandFactory as _, Parser as _};
use harness::{TestVolume, can_mount};
use machine::Store;
use serde_json::Value;
use sfs::command_line::{CtlArguments, MountArguments, UmountArguments};
use sfs::mount_options::table::{MountOption, TABLE};
use sfs_testkit::scratch_directory;

/// Compares a list with what the programs have.
fn compare(list: &str, found: &BTreeSet<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/promises").join(list);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let promised: BTreeSet<String> = lines.map(str::to_owned).collect();
    let broken: Vec<_> = promised.difference(found).collect();
    assert!(broken.is_empty(), "docs/promises/{list} promises what is not there: {broken:#?}");
    let new: Vec<&str> = found.difference(&promised).map(String::as_str).collect();
    assert!(new.is_empty(), "add these lines to docs/promises/{list}:\n{}", new.join("\n"));
}

/// Adds a line for each option, argument and command below `command`.
fn add_command(command: &clap::Command, name: &str, found: &mut BTreeSet<String>) {
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        found.extend(argument.get_long().map(|long| format!("{name} --{long}")));
        found.extend(argument.get_short().map(|short| format!("{name} -{short}")));
        if argument.is_positional() {
            found.insert(format!("{name} <{}>", argument.get_id()));
        }
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let name = format!("{name} {}", below.get_name());
        found.insert(name.clone());
        add_command(below, &name, found);
    }
}

#[test]
fn options_and_commands_stay() {
    let mut found = BTreeSet::new();
    let fsck = sfs_fsck::command();
    for program in [
        MountArguments::command(),
        UmountArguments::command(),
        CtlArguments::command(),
        sfs_mkfs::MkfsOptions::command(),
        fsck,
    ] {
        add_command(&program, program.get_name(), &mut found);
    }
    compare("command-lines.txt", &found);
}

#[test]
fn mount_options_stay() {
    let forms = TABLE.iter().flat_map(|option: &MountOption| option.forms);
    let values = forms.flat_map(|form| match form.split_once('=') {
        // A choice of words is promised word by word, other values by their kind.
        Some((name, choice)) => choice.split('|').map(|word| format!("{name}={word}")).collect(),
        None => vec![(*form).to_owned()],
    });
    compare("mount-options.txt", &values.collect());
}

/// Adds the path of each name in `value`: `space.free_bytes`, `groups[].blocks`.
fn add_names(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                add_names(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(values) => {
            values.iter().for_each(|value| add_names(value, &format!("{path}[]"), found));
        }
        _ => {}
    }
}

/// Runs a program, and returns its JSON. `status` is its exit status.
fn json(program: &Path, arguments: &[&str], status: i32) -> Value {
    let output = Command::new(program).args(arguments).output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Names in the JSON about a volume with one file that is not mounted. A mount has further names.
#[test]
fn names_in_json_stay() {
    let directory = scratch_directory();
    let content = directory.path().join("content");
    fs::create_dir(&content).expect("a directory");
    fs::write(content.join("file"), vec![7; 100_000]).expect("a file");
    let image = directory.path().join("image");
    let (image, content) = (image.to_str().expect("UTF-8"), content.to_str().expect("UTF-8"));
    let made = sfs_mkfs::MkfsOptions::try_parse_from([
        "sfs-mkfs", "--size", "16M", "--label", "name", "--from", content, image,
    ]);
    let made = sfs_mkfs::make(&made.expect("the options are known")).expect("a volume");
    let mut found = BTreeSet::new();
    add_names(&serde_json::json!(made), "sfs-mkfs", &mut found);
    let ctl = Path::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    for (name, arguments, status) in [
        ("stat", &["stat", "--json", image][..], 0),
        ("health", &["health", "--json", image], 0),
        ("segments", &["segments", "--json", image], 0),
        ("hot", &["hot", "--json", image], 0),
        ("file", &["file", "--json", "--device", image, "/file"], 0),
    ] {
        add_names(&json(ctl, arguments, status), &format!("sfs-ctl {name}"), &mut found);
    }
    compare("json-names.txt", &found);
}

/// Names in the JSON about a mounted volume, besides those of one that is not mounted.
#[test]
fn names_in_json_of_a_mount_stay() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("rw");
    fs::write(mount.dir.join("file"), vec![7; 100_000]).expect("there is room");
    let dir = mount.dir.to_str().expect("UTF-8");
    let ctl = Path::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    let file = format!("{dir}/file");
    let mut found = BTreeSet::new();
    for (name, arguments) in [
        ("checkpoint", &["checkpoint", "--json", dir][..]),
        ("clean", &["clean", "--json", dir]),
        ("trim", &["trim", "--json", dir]),
        ("defrag", &["defrag", "--json", &file]),
        ("scrub start", &["scrub", "start", "--json", "--wait", dir]),
        ("scrub status", &["scrub", "status", "--json", dir]),
        ("stat", &["stat", "--json", dir]),
        ("health", &["health", "--json", dir]),
        ("segments", &["segments", "--json", dir]),
        ("hot", &["hot", "--json", dir]),
        ("file", &["file", "--json", &file]),
    ] {
        add_names(&json(ctl, arguments, 0), &format!("sfs-ctl {name}"), &mut found);
    }
    let (_store, machine) = Store::with_volume("16M");
    let in_store = machine.mount("");
    let in_store_dir = in_store.dir.to_str().expect("UTF-8");
    add_names(&json(ctl, &["stat", "--json", in_store_dir], 0), "sfs-ctl stat", &mut found);
    in_store.unmount();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/promises/json-names.txt");
    let of_images = fs::read_to_string(path).expect("the list");
    found.retain(|name| !of_images.lines().any(|line| line == name));
    // Only debug builds measure locks.
    found.retain(|name| !name.starts_with("sfs-ctl stat.locks"));
    compare("json-names-mounted.txt", &found);
    mount.unmount();
}

#[test]
fn exit_statuses_have_unique_meanings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/promises/exit-statuses.txt");
    let text = fs::read_to_string(path).expect("the list");
    let pairs: Vec<(&str, u8)> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut words = line.splitn(3, ' ');
            let program = words.next().expect("a program");
            (program, words.next().and_then(|word| word.parse().ok()).expect("a status"))
        })
        .collect();
    assert_eq!(pairs.iter().collect::<BTreeSet<_>>().len(), pairs.len());
    let of = |program: &str| -> BTreeSet<u8> {
        pairs.iter().filter(|(name, _)| *name == program).map(|(_, status)| *status).collect()
    };
    use sfs::ExitStatus::{Damage, Loss, Mount, System, Usage};
    assert_eq!(of("sfs-mount"), BTreeSet::from([0, Usage as u8, System as u8, Mount as u8]));
    let umount = [0, Usage as u8, System as u8, Mount as u8, Loss as u8];
    assert_eq!(of("sfs-umount"), BTreeSet::from(umount));
    let ctl = [0, Usage as u8, System as u8, 3, Damage as u8, Mount as u8];
    assert_eq!(of("sfs-ctl"), BTreeSet::from(ctl));
    assert_eq!(of("sfs-fsck"), BTreeSet::from(sfs_fsck::EXIT_STATUSES));
}
