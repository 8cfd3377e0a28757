//! Commands for the whole volume: fstrim(8), the label, and swapon(8), which is refused.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use harness::{TestVolume, can_mount, stderr, transport};
use sfs_testkit::SeededRng;

const GET_LABEL: libc::Ioctl = 0x8100_9431;
const SET_LABEL: libc::Ioctl = 0x4100_9432;
const TRIM: libc::Ioctl = 0xc018_5879;

fn can_ioctl() -> bool {
    let can = transport() != "fuser";
    if !can {
        eprintln!("skipped: fuser does not pass ioctl(2)");
    }
    can_mount() && can
}

/// Issues an ioctl(2) on `path` with an argument in memory.
fn ioctl<T>(path: &Path, command: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: the descriptor is open, and the argument has the size in the number of the command.
    match unsafe { libc::ioctl(file.as_raw_fd(), command, std::ptr::from_mut(argument)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn code<T>(outcome: io::Result<T>) -> Option<i32> {
    outcome.err().and_then(|error| error.raw_os_error())
}

/// Space that was freed while discards were off is discarded by fstrim(8), which says how much.
#[test]
fn mounted_free_space_is_trimmed() {
    if !can_ioctl() {
        return;
    }
    let Some(volume) = TestVolume::on_loop("128M") else { return };
    let image = volume.scratch.path().join("image");
    let allocated = || fs::metadata(&image).expect("the image").blocks() * 512;
    let mount = volume.mount("nodiscard");
    let file = mount.dir.join("file");
    fs::write(&file, SeededRng::new(7).bytes(40 << 20)).expect("writing");
    File::open(&file).and_then(|file| file.sync_all()).expect("a sync");
    let keep = SeededRng::new(8).bytes(4 << 20);
    fs::write(mount.dir.join("keep"), &keep).expect("writing");
    fs::remove_file(&file).expect("removing");
    mount.unmount();
    let mount = volume.mount("nodiscard");
    let before = allocated();
    assert!(before > 40 << 20, "{before} bytes of the image are allocated");

    let output = Command::new("fstrim").arg("-v").arg(&mount.dir).output().expect("fstrim runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", stderr(&output));
    let bytes: u64 = said
        .split(['(', ')'])
        .nth(1)
        .and_then(|part| part.split(' ').next())
        .and_then(|bytes| bytes.parse().ok())
        .unwrap_or_else(|| panic!("{said}"));
    assert!((80 << 20..128 << 20).contains(&bytes), "{said}");
    assert!(allocated() < before - (30 << 20), "{} of {before} bytes are left", allocated());
    assert_eq!(fs::read(mount.dir.join("keep")).expect("reading"), keep);

    let mut range = [0u64, 100, 0];
    assert_eq!(code(ioctl(&mount.dir, TRIM, &mut range)), Some(libc::EINVAL), "a short range");
    let mut range = [1u64 << 40, 1 << 20, 0];
    assert_eq!(code(ioctl(&mount.dir, TRIM, &mut range)), Some(libc::EINVAL), "beyond the end");
    let mut range = [0, u64::MAX, 1u64 << 40];
    ioctl(&mount.dir, TRIM, &mut range).expect("a trim");
    assert_eq!(range[1], 0, "no free range is as long");
    let arguments = ["--reuid=65534", "--regid=65534", "--clear-groups", "fstrim"];
    let output = Command::new("setpriv").args(arguments).arg(&mount.dir).output();
    assert!(!output.expect("setpriv runs").status.success(), "a user must not trim");
    mount.unmount();
    volume.check();
    let mount = volume.mount("ro");
    assert_eq!(code(ioctl(&mount.dir, TRIM, &mut [0u64, u64::MAX, 0])), Some(libc::EROFS));
    mount.unmount();
}

#[test]
fn mounted_labels_are_read_and_set() {
    if !can_ioctl() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    let get = || {
        let mut label = [1u8; 256];
        ioctl(&mount.dir, GET_LABEL, &mut label).expect("a label");
        let end = label.iter().position(|byte| *byte == 0).expect("a NUL");
        String::from_utf8(label[..end].to_vec()).expect("UTF-8")
    };
    let set = |text: &[u8]| {
        let mut label = [0u8; 256];
        label[..text.len()].copy_from_slice(text);
        ioctl(&mount.dir, SET_LABEL, &mut label)
    };
    assert_eq!(get(), "");
    set("Kärtchen".as_bytes()).expect("root may set a label");
    assert_eq!(get(), "Kärtchen");
    assert_eq!(code(set(&[b'x'; 65])), Some(libc::EINVAL), "too long");
    assert_eq!(code(set(&[b'x'; 256])), Some(libc::EINVAL), "without a NUL");
    assert_eq!(code(set(b"a\nb")), Some(libc::EINVAL), "a control character");
    assert_eq!(code(set(b"\xff")), Some(libc::EINVAL), "not UTF-8");
    assert_eq!(get(), "Kärtchen");
    // The change is durable at once, in both superblocks.
    mount.kill();
    mount.detach();
    let device = sfs_device::FileDevice::open(&volume.device, sfs_device::Access::ReadOnly);
    let device = device.expect("the device is free");
    let options = sfs_core::request::VolumeOptions { read_only: true, ..Default::default() };
    let now = sfs_core::format::Timestamp::default();
    let opened = sfs_core::Volume::open(std::sync::Arc::new(device), options, now);
    assert_eq!(opened.expect("the volume opens").label().as_str(), "Kärtchen");
    volume.check();
}

/// A file cannot be used for swapping: the volume moves blocks. swapon(8) fails, the file stays as it is, and the
/// volume goes on.
#[test]
fn mounted_files_are_refused_for_swapping() {
    if !can_mount() {
        return;
    }
    let Some(volume) = TestVolume::on_loop("64M") else { return };
    let mount = volume.mount("");
    let file = mount.dir.join("swap");
    fs::write(&file, vec![1; 4 << 20]).expect("writing");
    let made = Command::new("mkswap").arg(&file).output().expect("mkswap runs");
    assert!(made.status.success(), "{}", stderr(&made));
    let before = fs::read(&file).expect("reading");
    let output = Command::new("swapon").arg(&file).output().expect("swapon runs");
    assert!(!output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("Invalid argument"), "{}", stderr(&output));
    let swaps = fs::read_to_string("/proc/swaps").expect("Linux");
    assert!(!swaps.contains(file.to_str().expect("UTF-8")));
    assert_eq!(fs::read(&file).expect("reading"), before);
    fs::remove_file(&file).expect("the file is not in use");
    mount.unmount();
    volume.check();
}
