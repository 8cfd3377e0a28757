//! A volume as the upper layer of overlayfs, as overlayroot and container engines use one.

use std::path::Path;
use std::process::Command;

use super::harness::{TestVolume, can_mount, stderr};
use super::{SIZE, on_volumes};

/// Mounts an overlay in a mount namespace of its own: the lower layer is in memory, the upper on
/// the volume. The upper layer is compared again after another mount.
const LAYERS: &str = r#"
    set -e
    mkdir "$1/upper" "$1/work" "$1/lower" "$1/merged"
    mount -t tmpfs tmpfs "$1/lower"
    cd "$1/lower"
    mkdir -p kept replaced deep/er
    for name in changed deleted renamed kept/file replaced/old deep/er/file; do echo "$name" > "$name"; done
    mount -t overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" overlay "$1/merged" ||
        { grep -qw overlay /proc/filesystems || { echo "skipped: no overlayfs"; exit 0; }; exit 1; }
    cd "$1/merged"
    echo more >> changed
    rm deleted
    mv renamed moved
    mv kept/file deep/er/moved
    rm -r replaced; mkdir replaced; echo new > replaced/new
    ln changed linked
    # With "set -e" a shell ignores the status of a command after an exclamation mark.
    absent() { test ! -e "$1"; }
    look() {
        test "$(cat changed)" = "changed
more"
        absent deleted
        absent renamed
        test "$(cat moved)" = renamed
        absent kept/file
        test "$(cat deep/er/moved)" = kept/file
        test "$(ls replaced)" = new
        test "$(cat linked)" = "$(cat changed)"
    }
    look
    cd /
    umount "$1/merged"
    test -c "$1/upper/deleted"
    test -c "$1/upper/renamed"
    mount -t overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" overlay "$1/merged"
    cd "$1/merged"
    look
    cd /
    umount "$1/merged" "$1/lower"
    echo done
"#;

#[test]
fn mounted_volumes_serve_as_the_upper_layer_of_overlayfs() {
    on_volumes(layers);
}

fn layers(dir: &Path) {
    run(LAYERS, &[dir]);
}

/// Runs `script`, which prints "done" or the reason for a skip.
fn run(script: &str, arguments: &[&Path]) {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).args(arguments);
    let Ok(output) = command.output() else {
        return eprintln!("skipped: unshare is not installed");
    };
    let said = String::from_utf8_lossy(&output.stdout);
    if said.contains("skipped: ") || stderr(&output).contains("unshare:") {
        return eprintln!("skipped: {said}{}", stderr(&output));
    }
    assert!(output.status.success() && said.contains("done"), "{said}{}", stderr(&output));
}

/// Options with which overlayfs finds files of the upper layer by stored file handles.
const HANDLES: &str = r#"
    set -e
    mkdir -p "$1/upper" "$1/work" "$2/lower/x" "$2/merged"
    layers="lowerdir=$2/lower,upperdir=$1/upper,workdir=$1/work"
    mount -t overlay -o "$layers,index=on,nfs_export=on" overlay "$2/merged" ||
        { grep -qw overlay /proc/filesystems || { echo "skipped: no overlayfs"; exit 0; }; exit 1; }
    if test -e "$1/upper/x/new"; then
        test "$(cat "$2/merged/x/new")" = precious
    else
        echo precious > "$2/merged/x/new"
    fi
    umount "$2/merged"
    echo done
"#;

#[test]
fn mounted_file_handles_survive_another_mount() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    for _ in 0..3 {
        let mount = volume.mount("");
        run(HANDLES, &[&mount.dir, volume.scratch.path()]);
        mount.unmount();
    }
    volume.check();
}
