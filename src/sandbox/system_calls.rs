//! The system calls that the daemon may still make, by seccomp.
//!
//! An allow-list: a call that a later kernel adds is refused until the daemon uses it. Any other call fails with EPERM, and the kernel
//! writes a line into its audit log, where that is on. The process is not killed: a call that a new C library makes must not end a
//! mount, and an attacker gains nothing from an error.
//!
//! Programs for other processors than those of the crate seccompiler (x86-64, aarch64, riscv64) have no such limit.
//!
//! The calls on the path of a request have no condition on their arguments, so the kernel (from Linux 5.11 on) allows them by a bitmap,
//! without running the filter.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::unsafe_calls;

/// Calls that are allowed with any arguments.
const ALLOWED: &[c_long] = &[
    // Requests, replies and the device.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_io_uring_enter,
    libc::SYS_fdatasync,
    libc::SYS_fsync,
    libc::SYS_fallocate,
    libc::SYS_lseek,
    libc::SYS_flock,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_readlinkat,
    // The end of a socket's file; Landlock says where.
    libc::SYS_unlinkat,
    // Sockets that are there, and the system's log.
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_shutdown,
    libc::SYS_ppoll,
    // Memory, threads, time and signals.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Questions about this process and the machine.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    // Refused by the second filter.
    libc::SYS_clone3,
    libc::SYS_newfstatat,
    // Older forms, of which some C libraries use some.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Commands of ioctl(2): length, state and discarding of a block device, a further `/dev/fuse`, and sockets that do not block.
const IOCTLS: [u64; 5] = [BLKROGET, BLKGETSIZE64, BLKDISCARD, FUSE_DEV_IOC_CLONE, FIONBIO];
const BLKROGET: u64 = 0x125e;
const BLKGETSIZE64: u64 = libc::_IOR::<usize>(0x12, 114) as u32 as u64;
const BLKDISCARD: u64 = 0x1277;
const FUSE_DEV_IOC_CLONE: u64 = libc::_IOR::<u32>(229, 0) as u32 as u64;
const FIONBIO: u64 = libc::FIONBIO as u32 as u64;

/// `IORING_REGISTER_ENABLE_RINGS` of `<linux/io_uring.h>`.
const ENABLE_RINGS: u64 = 12;

/// `PR_SET_VMA`, by which the C library names memory.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Bits of the type of a socket.
const SOCKET_TYPE: u64 = 0xf;

/// Restricts this thread, and those that it starts, to the calls that the daemon needs.
///
/// # Errors
///
/// Errors of seccomp(2).
pub(super) fn enforce() -> io::Result<()> {
    // The filter of the allowed calls forbids a further filter.
    unsafe_calls::filter_system_calls(&without_clone3()?, false)?;
    unsafe_calls::filter_system_calls(&calls()?, true)
}

/// Returns the filter of the allowed calls.
fn calls() -> io::Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let conditional: [(c_long, Vec<SeccompRule>); 10] = [
        (libc::SYS_openat, vec![all(&[lacks(2, libc::O_CREAT | libc::O_TRUNC)])?]),
        (libc::SYS_socket, vec![all(&[is(0, libc::AF_UNIX), is_datagram()])?]),
        (libc::SYS_ioctl, one_of(1, &IOCTLS)?),
        (libc::SYS_fcntl, fcntls()?),
        (libc::SYS_mmap, vec![all(&[lacks(2, libc::PROT_EXEC)])?]),
        (libc::SYS_mprotect, vec![all(&[lacks(2, libc::PROT_EXEC)])?]),
        (libc::SYS_prctl, one_of(0, &[libc::PR_SET_NAME as u64, PR_SET_VMA])?),
        // A thread, as pthread_create(3) makes it: in no new namespace.
        (libc::SYS_clone, vec![all(&[has(0, libc::CLONE_THREAD), lacks(0, NAMESPACES)])?]),
        (libc::SYS_io_uring_register, one_of(1, &[ENABLE_RINGS])?),
        // abort(3) sends a signal to its own thread.
        (libc::SYS_tgkill, one_of(0, &[u64::from(std::process::id())])?),
    ];
    rules.extend(conditional);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![all(&[lacks(1, libc::O_CREAT | libc::O_TRUNC)])?]);
    compile(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// Commands of fcntl(2). With a signal of a descriptor (`F_SETOWN`, `F_SETSIG`, `O_ASYNC`) root's user number alone would be enough to
/// kill any process.
fn fcntls() -> io::Result<Vec<SeccompRule>> {
    let commands = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC];
    let mut rules = one_of(1, &commands.map(|command| command as u64))?;
    rules.push(all(&[is(1, libc::F_SETFL), lacks(2, libc::O_ASYNC)])?);
    Ok(rules)
}

/// Flags of clone(2) that make namespaces.
const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Returns the filter by which clone3(2), whose flags no filter can see, does not exist: the C library then calls clone(2). The
/// first filter allows the call, so that it causes no line in the audit log.
fn without_clone3() -> io::Result<BpfProgram> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    compile(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    action: SeccompAction,
) -> io::Result<BpfProgram> {
    let unsupported = |_| io::Error::from(io::ErrorKind::Unsupported);
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(unsupported)?;
    let filter = SeccompFilter::new(rules, otherwise, action, arch).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}

/// Condition on the lower half of an argument.
type Condition = (u8, SeccompCmpOp, u64);

fn is(argument: u8, value: libc::c_int) -> Condition {
    (argument, SeccompCmpOp::Eq, value as u64)
}

fn has(argument: u8, bits: libc::c_int) -> Condition {
    (argument, SeccompCmpOp::MaskedEq(bits as u32 as u64), bits as u32 as u64)
}

fn lacks(argument: u8, bits: libc::c_int) -> Condition {
    (argument, SeccompCmpOp::MaskedEq(bits as u32 as u64), 0)
}

fn is_datagram() -> Condition {
    (1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), libc::SOCK_DGRAM as u64)
}

/// Returns the rule that all conditions hold.
fn all(conditions: &[Condition]) -> io::Result<SeccompRule> {
    let conditions = conditions.iter().cloned().map(|(argument, operator, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    });
    let conditions: Result<_, _> = conditions.collect();
    conditions.and_then(SeccompRule::new).map_err(io::Error::other)
}

/// Returns the rules that an argument is one of `values`.
fn one_of(argument: u8, values: &[u64]) -> io::Result<Vec<SeccompRule>> {
    values.iter().map(|value| all(&[(argument, SeccompCmpOp::Eq, *value)])).collect()
}
