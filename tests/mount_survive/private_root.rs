//! Daemons that do not find their files where the first one did: in an initramfs.

use std::path::Path;
use std::process::Command;

use super::harness::{TestVolume, can_mount, stderr};
use super::{SFS_MOUNT, SurvivingMount};

/// Mounts as an initramfs does, in a mount namespace of its own: the files of the program are deleted, and the volume becomes the root
/// directory of the system. Then daemons are killed, and the program that is installed on the volume goes on. `$1`: directory of the
/// initramfs, `$2`: image, `$3`: program, `$4`: a name, `$5`: sfs-ctl, `$6`: directory where the program is installed.
const INITRAMFS: &str = r#"
set -e
mount -t tmpfs -o size=256m initramfs "$1"
cd "$1"
mkdir -p dev etc new proc run sys ".$6"
touch etc/initrd-release "$4"
for dir in dev proc sys run; do mount --rbind "/$dir" "$dir"; done
mount --bind "$2" "$4"
cp "$3" ".$6/@sfs-mount"
for file in $(ldd "$3" | grep -o '/[^ ]*'); do mkdir -p ".${file%/*}" && cp -L "$file" ".$file"; done
chroot . "$6/@sfs-mount" "/$4" /new
umount -l "$4"
for dir in dev proc sys run; do umount -l "$dir"; done
rm -rf etc lib lib64 usr ".$6"
mount --move new .
cd "$1"
processes() {
    for pid in $(pgrep -f "sfs-mount /$4 /new"); do
        case "$(cat "/proc/$pid/comm")" in sfs-monitor) echo "monitor $pid" ;; *) echo "daemon $pid" ;; esac
    done
}
daemon() { processes "$@" | sed -n 's/^daemon //p'; }
monitor() { processes "$@" | sed -n 's/^monitor //p'; }
# A failure must not keep the namespace, which has the mounts of other tests.
trap 'kill -KILL $(monitor "$@") $(daemon "$@")' EXIT
for round in 1 2 3; do
    before=$(daemon "$@")
    case "$(tr '\0' ' ' <"/proc/$before/cmdline")" in @sfs-mount* | "$6"/@sfs-mount*) ;; *) exit 3 ;; esac
    kill -KILL "$before"
    echo "$round" >round
    [ "$(cat round)" = "$round" ]
    [ "$(daemon "$@")" != "$before" ]
done
# No filesystem of the system stays busy by the daemon's own mount namespace.
[ "$(cut -d ' ' -f 5 "/proc/$(daemon "$@")/mountinfo" | tr '\n' ' ')" = "/ /dev /proc /run /sys " ]
# The installed program is on the mount, and the daemon that is asked may die while it is read.
mkdir installed
mount --bind installed "$6"
echo nothing >installed/@sfs-mount
if "$5" upgrade "$1" 2>refusal; then exit 4; fi
grep 'Exec format error' refusal
cp "$3" installed/@sfs-mount
# Its end is never reached by a program, and takes long to read.
truncate -s 400M installed/@sfs-mount
sync -f .
monitor=$(monitor "$@")
hits=0
for round in 1 2 3; do
    echo 3 >/proc/sys/vm/drop_caches
    "$5" upgrade "$1" &
    tries=0
    until ls -l "/proc/$monitor/fd" | grep -q "$6/@sfs-mount"; do
        tries=$((tries + 1))
        [ "$tries" -lt 1000 ] && kill -0 $! || break
    done
    kill -KILL $(daemon "$@") || true
    ! ls -l "/proc/$monitor/fd" | grep -q "$6/@sfs-mount" || hits=$((hits + 1))
    echo "kill $round" >round
    [ "$(cat round)" = "kill $round" ]
    wait $! || true
done
[ "$hits" -ge 1 ]
echo 3 >/proc/sys/vm/drop_caches
"$5" upgrade "$1"
rm -r installed/*
before=$(daemon "$@")
kill -KILL "$before"
[ "$(cat round)" = "kill 3" ]
umount "$6"
monitor=$(monitor "$@")
trap - EXIT
cd /
umount "$1"
while [ -d "/proc/$monitor" ]; do sleep 0.1; done
"#;

#[test]
fn the_daemon_of_an_initramfs_is_started_again_after_its_files_are_deleted() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("256M");
    // Kernels that do not send requests again are not used for it by default.
    let Some(asked) = SurvivingMount::new(&volume) else { return };
    asked.unmount();
    let name = volume.scratch.path().file_name().expect("a name").to_owned();
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", INITRAMFS, "sh"]);
    command.arg(&volume.dir).arg(&volume.device).arg(Path::new(SFS_MOUNT)).arg(name);
    let installed = volume.scratch.path().join("installed");
    std::fs::create_dir(&installed).expect("room");
    command.arg(env!("CARGO_BIN_EXE_sfs-ctl")).arg(&installed);
    let output = command.output().expect("unshare runs");
    assert!(output.status.success(), "{}: {}", output.status, stderr(&output));
    volume.check();
}
