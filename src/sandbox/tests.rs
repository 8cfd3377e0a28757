//! The limits, tried in a child process: one of its threads enters the sandbox and tries to break out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use nix::mount::{MntFlags, MsFlags};
use rustix::thread::CapabilitySet;

use super::{FileUse, Limits, NeededFiles, enter};

/// Variable with the directory of the child's test files.
const CHILD: &str = "SFS_TEST_SANDBOX";

/// Asserts that the system refuses `outcome`.
fn refused<T>(act: &str, outcome: io::Result<T>) {
    let Err(error) = outcome else { panic!("{act} was possible") };
    let is_refusal = error.kind() == ErrorKind::PermissionDenied
        || matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS));
    assert!(is_refusal, "{act}: {error}");
    println!("refused: {act}: {error}");
}

#[test]
fn a_daemon_inside_can_do_its_work_and_nothing_else() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return break_out(Path::new(&dir));
    }
    let scratch = tempfile::tempdir().expect("a directory");
    for name in ["needed", "readable", "other"] {
        fs::write(scratch.path().join(name), name).expect("room");
    }
    fs::create_dir(scratch.path().join("sockets")).expect("a directory");
    fs::write(scratch.path().join("sockets/socket"), "").expect("room");
    let mut child = Command::new(std::env::current_exe().expect("the test has a path"));
    let test = "sandbox::tests::a_daemon_inside_can_do_its_work_and_nothing_else";
    let output = child.args(["--exact", test, "--nocapture"]).env(CHILD, scratch.path()).output();
    let output = output.expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    if let Some(reason) = said.lines().find(|line| line.starts_with("skip: ")) {
        return println!("{reason}");
    }
    assert!(said.contains("refused: ptrace"), "the child has tried: {said}");
    assert_eq!(fs::read(scratch.path().join("other")).expect("the file is there"), b"other");
    assert_eq!(fs::read(scratch.path().join("needed")).expect("the file is there"), b"Needed");
}

fn break_out(dir: &Path) {
    let mut files = NeededFiles::default();
    files.add(&dir.join("needed"), FileUse::Write);
    files.add(&dir.join("readable"), FileUse::Read);
    files.add(&dir.join("sockets"), FileUse::Remove);
    let open = File::open(dir.join("other")).expect("the file is there");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("a port");
    let limits = enter(&files, CapabilitySet::empty());
    if let Limits { files: false, .. } | Limits { system_calls: false, .. } = limits {
        println!("skip: this system lacks a limit: {limits:?}");
        return;
    }
    assert_eq!(
        limits,
        Limits { capabilities: true, no_new_privileges: true, files: true, system_calls: true }
    );
    // The work of the daemon.
    let write = || OpenOptions::new().read(true).write(true).open(dir.join("needed"));
    std::os::unix::fs::FileExt::write_all_at(&write().expect("the device"), b"N", 0)
        .expect("writing");
    assert_eq!(fs::read(dir.join("readable")).expect("a file"), b"readable");
    fs::remove_file(dir.join("sockets/socket")).expect("a socket of the daemon");
    io::read_to_string(&open).expect("an open file stays open");
    let thread = std::thread::Builder::new().name("inside".into()).spawn(inside);
    thread.expect("a thread").join().expect("no panic");
    UnixDatagram::unbound().expect("a socket for the log");
    // Everything else.
    refused("open /etc/shadow", File::open("/etc/shadow"));
    refused("open /etc/passwd", File::open("/etc/passwd"));
    refused("open a directory", fs::read_dir("/"));
    refused("open a process's memory", File::open("/proc/self/mem"));
    refused("open another file", File::open(dir.join("other")));
    let writable = OpenOptions::new().write(true).open(dir.join("readable"));
    refused("write a file that is only read", writable);
    refused("truncate", File::create(dir.join("needed")));
    refused("create", File::create(dir.join("new")));
    refused("create a directory", fs::create_dir(dir.join("new")));
    refused("remove", fs::remove_file(dir.join("other")));
    refused("rename", fs::rename(dir.join("other"), dir.join("new")));
    refused("link", fs::hard_link(dir.join("other"), dir.join("new")));
    refused("run a program", Command::new("/bin/true").status());
    refused("ptrace", nix::sys::ptrace::traceme().map_err(io::Error::from));
    refused("connect over TCP", TcpStream::connect(address));
    refused("listen over TCP", TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    refused("connect a stream", UnixStream::connect("/run/systemd/private"));
    refused("listen", UnixListener::bind(dir.join("sockets/new")));
    let none = None::<&str>;
    let mount = nix::mount::mount(none, dir, Some("tmpfs"), MsFlags::empty(), none);
    refused("mount", mount.map_err(io::Error::from));
    let unmount = nix::mount::umount2(dir, MntFlags::MNT_DETACH);
    refused("unmount", unmount.map_err(io::Error::from));
    // Of this thread alone: the C library would change the other thread of the test, which has no limits.
    let ids = rustix::thread::set_thread_uid(rustix::thread::Uid::from_raw(1));
    refused("become another user", ids.map_err(io::Error::from));
    let signal = nix::sys::signal::kill(nix::unistd::getppid(), None);
    refused("send a signal", signal.map_err(io::Error::from));
    // With a signal number and root as the owner, the signal of a descriptor kills any process.
    let signals =
        rustix::fs::fcntl_setfl(&open, rustix::fs::OFlags::from_bits_retain(libc::O_ASYNC as u32));
    refused("ask for the signals of a descriptor", signals.map_err(io::Error::from));
    let flags = rustix::fs::fcntl_getfl(&open).expect("a question about a descriptor");
    rustix::fs::fcntl_setfl(&open, flags | rustix::fs::OFlags::NONBLOCK).expect("other flags");
    let memory = rustix::fs::memfd_create(c"x", rustix::fs::MemfdFlags::empty());
    refused("a file in memory, to run it", memory.map_err(io::Error::from));
}

/// Work of a thread that was started inside.
fn inside() {
    refused("open /etc/shadow in a thread", File::open("/etc/shadow"));
    let own = fs::read_dir("/proc/self/task");
    refused("look at processes in a thread", own);
}

/// Prints the cost of the filter for a system call on the path of a request. Run it on a quiet machine.
#[test]
#[ignore = "measures time, and only prints it"]
fn an_allowed_system_call_costs_little_more() {
    const CALLS: u32 = 100_000;
    let file = File::open("/dev/zero").expect("a file");
    // The shortest of many rounds: other programs make a round longer, and never shorter.
    let nanoseconds = move || {
        let round = |_| {
            let begun = std::time::Instant::now();
            for _ in 0..CALLS {
                std::os::unix::fs::FileExt::read_at(&file, &mut [], 0).expect("nothing is read");
            }
            begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
        };
        (0..50).map(round).fold(f64::INFINITY, f64::min)
    };
    let nanoseconds = std::sync::Arc::new(nanoseconds);
    let free = nanoseconds();
    // The limits end with this thread.
    let limited = std::thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).expect("always possible");
        super::system_calls::enforce().expect("the kernel has seccomp");
        nanoseconds()
    });
    let limited = limited.join().expect("no panic");
    println!(
        "pread64 of nothing: {free:.1} ns, inside {limited:.1} ns: {:.1} ns more",
        limited - free
    );
}
