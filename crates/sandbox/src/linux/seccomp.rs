//! seccomp: parts of the kernel that no agent needs, and the kinds of sockets and programs that Landlock can't refuse.

use std::{collections::BTreeMap, io};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::{FileView, NetworkAccess, Walls};

use super::{exec_once::ExecPermit, unmediated};

/// Ways to other processes, to the kernel's inside, and to new namespaces, where walls could be moved.
const NEVER: [i64; 34] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    // open_tree_attr, the same for every architecture.
    467,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_swapon,
    libc::SYS_reboot,
    libc::SYS_quotactl,
    libc::SYS_acct,
];

/// Messages and memory that others of the same user can open by number or name. Namespaces have their own.
const BY_NUMBER: [i64; 13] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Calls that change how another process is scheduled, if their first argument is not 0.
const SCHEDULING: [i64; 4] =
    [libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr, libc::SYS_sched_setaffinity];
/// Those whose first argument says whose number the second one is, with the ones that mean the caller if it is 0.
const PRIORITIES: [(i64, [i32; 2]); 2] =
    [(libc::SYS_setpriority, [PRIO_PROCESS, PRIO_PGRP]), (libc::SYS_ioprio_set, [IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP])];
const PRIO_PROCESS: i32 = 0;
const PRIO_PGRP: i32 = 1;
const IOPRIO_WHO_PROCESS: i32 = 1;
const IOPRIO_WHO_PGRP: i32 = 2;

/// The flags of `clone` that create namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// Sockets that reach nothing from a private network namespace. Those in the file system do reach others.
const OWN_SOCKETS: [i32; 2] = [libc::AF_INET, libc::AF_INET6];

/// Kinds of sockets that programs on a shared network use.
const SHARED_SOCKETS: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// The same without those in files.
const INTERNET_SOCKETS: [i32; 3] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// What those of the internet speak. Landlock knows the ports of TCP only, so others that listen on ports (MPTCP, SCTP)
/// would go around it.
const SPOKEN: [i32; 5] = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6];

/// The types of such sockets: streams, datagrams, raw ones. With protocol 0, the others would be SCTP or DCCP.
const TYPES: [i32; 3] = [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW];

/// The type of a socket without its flags.
const TYPE_MASK: u64 = 0xf;

/// Requests that type into a terminal, where somebody else's shell would read it.
#[allow(clippy::unnecessary_cast, reason = "the C libraries have different types for it")]
const TYPING: [u64; 2] = [libc::TIOCSTI as u64, libc::TIOCLINUX as u64];

/// Restricts this thread and everything it starts. With a permit, that one call still starts a program.
pub(super) fn restrict(walls: &Walls, is_in_namespaces: bool, permit: Option<ExecPermit>) -> io::Result<()> {
    let refused = compile(refusals(walls, is_in_namespaces, permit), libc::EPERM)?;
    // Its flags are in memory that the filter can't see, and programs fall back to `clone`.
    let absent = compile(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?;
    for filter in [refused, absent, other_numbers()] {
        seccompiler::apply_filter(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

fn compile(refused: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> io::Result<BpfProgram> {
    let errno = SeccompAction::Errno(errno.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(refused, SeccompAction::Allow, errno, architecture).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}

fn refusals(walls: &Walls, is_in_namespaces: bool, permit: Option<ExecPermit>) -> BTreeMap<i64, Vec<SeccompRule>> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = NEVER.into_iter().map(|call| (call, Vec::new())).collect();
    let namespace = |bit: u64| is(0, SeccompCmpOp::MaskedEq(bit), bit);
    let bits = (0..u64::BITS).map(|shift| 1_u64 << shift).filter(|bit| NAMESPACES & bit != 0);
    refused.insert(libc::SYS_clone, bits.map(namespace).collect());
    let mut requests: Vec<SeccompRule> = TYPING.into_iter().map(request).collect();
    if walls.files == FileView::Declared {
        refused.extend(unmediated::leases());
    }
    // In namespaces, what it can only read is mounted read-only, and there is nothing else.
    if !is_in_namespaces && walls.files == FileView::Declared {
        refused.extend(BY_NUMBER.map(|call| (call, Vec::new())));
        refused.extend(unmediated::calls());
        requests.extend(unmediated::requests());
    }
    refused.insert(libc::SYS_ioctl, requests);
    if !is_in_namespaces {
        refused.extend(of_others());
    }
    // A file that can't even be seen can be connected to: Landlock knows no right for it.
    let reaches_services = !is_in_namespaces && walls.files == FileView::Declared;
    if reaches_services || walls.network != NetworkAccess::All {
        refused.insert(libc::SYS_socketpair, loose_pairs());
    }
    if walls.network == NetworkAccess::All {
        let kinds: &[i32] = if reaches_services { &INTERNET_SOCKETS } else { &SHARED_SOCKETS };
        refused.insert(libc::SYS_socket, shared_network(kinds));
    } else {
        // With namespaces, the process is alone in its network.
        let kinds = if is_in_namespaces { vec![none_of(&OWN_SOCKETS)] } else { Vec::new() };
        refused.insert(libc::SYS_socket, kinds);
    }
    if let Some(ExecPermit { arguments, environment }) = permit {
        refused.insert(libc::SYS_execveat, Vec::new());
        let others = vec![is(1, SeccompCmpOp::Ne, arguments), is(2, SeccompCmpOp::Ne, environment)];
        refused.insert(libc::SYS_execve, others);
    }
    refused
}

/// Changes of the limits and priorities of other processes, which need no more than the same user.
fn of_others() -> BTreeMap<i64, Vec<SeccompRule>> {
    let other = || condition(0, SeccompCmpOp::Ne, 0);
    let a_limit = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    let limits = all(vec![other(), a_limit.expect("system calls have six arguments")]);
    let mut refused = BTreeMap::from([(libc::SYS_prlimit64, vec![limits])]);
    refused.extend(SCHEDULING.map(|call| (call, vec![all(vec![other()])])));
    refused.extend(
        PRIORITIES.map(|(call, own)| (call, vec![none_of(&own), all(vec![condition(1, SeccompCmpOp::Ne, 0)])])),
    );
    refused
}

/// Pairs whose ends can be sent elsewhere: those of datagrams take another address, those of streams don't.
fn loose_pairs() -> Vec<SeccompRule> {
    let of_type = |kind| SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(TYPE_MASK), kind);
    let tied = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].map(|kind| u64::from(kind.unsigned_abs()));
    let loose = (0..=TYPE_MASK).filter(|kind| !tied.contains(kind));
    loose.map(|kind| all(vec![of_type(kind).expect("system calls have six arguments")])).collect()
}

/// What isn't refused: sockets of files, TCP, UDP, ping, and asking for the machine's addresses and routes.
fn shared_network(kinds: &[i32]) -> Vec<SeccompRule> {
    let mut refused = vec![none_of(kinds)];
    let netlink = condition(0, SeccompCmpOp::Eq, libc::AF_NETLINK);
    refused.push(all(vec![netlink, condition(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE)]));
    for family in OWN_SOCKETS {
        let of_family = || condition(0, SeccompCmpOp::Eq, family);
        let unspoken = SPOKEN.into_iter().map(|protocol| condition(2, SeccompCmpOp::Ne, protocol));
        refused.push(all([of_family()].into_iter().chain(unspoken).collect()));
        let others = (0..=TYPE_MASK).filter(|kind| TYPES.iter().all(|known| u64::from(known.unsigned_abs()) != *kind));
        refused.extend(others.map(|kind| {
            let of_type = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(TYPE_MASK), kind);
            all(vec![of_family(), of_type.expect("system calls have six arguments")])
        }));
    }
    refused
}

/// Refuses the calls of other interfaces to the same kernel, whose numbers the filters above don't know (x32).
fn other_numbers() -> BpfProgram {
    const X32_BIT: u32 = 0x4000_0000;
    let instruction = |code: u32, jt: u8, k: u32| seccompiler::sock_filter {
        code: u16::try_from(code).expect("BPF codes are short"),
        jt,
        jf: 0,
        k,
    };
    vec![
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32_BIT),
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
    ]
}

/// A rule about the first argument of a call: it is none of these.
fn none_of(values: &[i32]) -> SeccompRule {
    all(values.iter().map(|value| condition(0, SeccompCmpOp::Ne, *value)).collect())
}

/// One that holds if all of these do.
pub(super) fn all(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("there are conditions")
}

/// About an argument of which the kernel looks at the lower half only.
pub(super) fn condition(argument: u8, how: SeccompCmpOp, value: i32) -> SeccompCondition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, u64::from(value.unsigned_abs()))
        .expect("system calls have six arguments")
}

/// A rule about the request of an `ioctl`.
pub(super) fn request(value: u64) -> SeccompRule {
    all(vec![request_of(SeccompCmpOp::Eq, value)])
}

/// About such a request, of which the kernel looks at the lower half only.
pub(super) fn request_of(how: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(1, SeccompCmpArgLen::Dword, how, value).expect("system calls have six arguments")
}

/// A rule about one argument of a call.
pub(super) fn is(argument: u8, how: SeccompCmpOp, value: u64) -> SeccompRule {
    let length = if argument == 0 { SeccompCmpArgLen::Dword } else { SeccompCmpArgLen::Qword };
    let condition = SeccompCondition::new(argument, length, how, value).expect("system calls have six arguments");
    SeccompRule::new(vec![condition]).expect("one condition")
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsRawFd as _, path::Path, thread};

    use attache_protocol::wire::run::SandboxLimit;
    use rustix::{
        fs::{AtFlags, Mode, Timespec, Timestamps, XattrFlags, inotify},
        io::Errno,
    };

    use super::*;

    /// In a thread of its own, because filters stay. Without Landlock, so only these filters refuse.
    fn inside<T: Send>(walls: &Walls, work: impl FnOnce() -> T + Send) -> T {
        let walled = || {
            rustix::thread::set_no_new_privs(true).unwrap();
            restrict(walls, false, None).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(walled).join().unwrap())
    }

    /// The errors of changes of a file that may only be read: through a descriptor, and by its path.
    fn changes(path: &Path) -> Vec<(&'static str, Result<(), Errno>)> {
        let file = fs::File::open(path).unwrap();
        let gid = Some(rustix::process::getgid());
        let moment = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: moment, last_modification: moment };
        let (at, nothing) = (rustix::fs::CWD, AtFlags::empty());
        let watcher = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        vec![
            ("fchmod", rustix::fs::fchmod(&file, Mode::RUSR)),
            ("fchmodat", rustix::fs::chmodat(at, path, Mode::RUSR, nothing)),
            ("fchown", rustix::fs::fchown(&file, None, gid)),
            ("fchownat", rustix::fs::chownat(at, path, None, gid, nothing)),
            ("fsetxattr", rustix::fs::fsetxattr(&file, "user.x", b"1", XattrFlags::empty())),
            ("setxattr", rustix::fs::setxattr(path, "user.x", b"1", XattrFlags::empty())),
            ("fremovexattr", rustix::fs::fremovexattr(&file, "user.x")),
            ("removexattr", rustix::fs::removexattr(path, "user.x")),
            ("futimens", rustix::fs::futimens(&file, &times)),
            ("utimensat", rustix::fs::utimensat(at, path, &times, nothing)),
            ("flags", rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::NODUMP)),
            ("inotify", inotify::add_watch(&watcher, path, inotify::WatchFlags::ALL_EVENTS).map(drop)),
            ("dnotify", notices(&fs::File::open(path.parent().unwrap()).unwrap())),
        ]
    }

    /// Files that are made in a folder.
    const DN_CREATE: i32 = 4;

    #[allow(unsafe_code, reason = "a system call without pointers")]
    fn notices(folder: &fs::File) -> Result<(), Errno> {
        // SAFETY: the descriptor is open, and only numbers are passed.
        match unsafe { libc::fcntl(folder.as_raw_fd(), libc::F_NOTIFY, DN_CREATE) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap()),
        }
    }

    #[test]
    fn without_namespaces_a_file_that_can_only_be_read_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tool");
        fs::write(&path, "").unwrap();
        let walls = Walls::open(folder.path()).limit(&[SandboxLimit::CwdOnly]);
        let refused = inside(&walls, || changes(&path));
        let open: Vec<_> = refused.iter().filter(|(_, done)| *done != Err(Errno::PERM)).collect();
        assert_eq!(open, Vec::<&(&str, Result<(), Errno>)>::new());
        // The attempts themselves are right.
        for (how, done) in changes(&path) {
            assert!(!matches!(done, Err(Errno::PERM | Errno::NOSYS)), "{how} {done:?}");
        }
    }

    #[test]
    fn without_namespaces_ordinary_work_with_files_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("file"), folder.path().join("copy"));
        let walls = Walls::open(folder.path()).limit(&[SandboxLimit::CwdOnly]);
        inside(&walls, || {
            fs::write(&path, "text").unwrap();
            let (file, copied) = (fs::File::open(&path).unwrap(), fs::File::create(&copy).unwrap());
            // `touch`, a copy that shares its data (not every file system can), and a lock.
            touch(&file).unwrap();
            assert_ne!(rustix::fs::ioctl_ficlone(&copied, &file), Err(Errno::PERM));
            assert_ne!(rustix::fs::ioctl_getflags(&file), Err(Errno::PERM));
            rustix::fs::flock(&copied, rustix::fs::FlockOperation::LockExclusive).unwrap();
            fs::rename(&copy, folder.path().join("moved")).unwrap();
        });
    }

    /// As the C library does it.
    #[allow(unsafe_code, reason = "a system call with null pointers that it allows")]
    fn touch(file: &fs::File) -> io::Result<()> {
        use std::os::fd::AsRawFd as _;

        // SAFETY: without times, the kernel takes the current one.
        match unsafe { libc::futimens(file.as_raw_fd(), std::ptr::null()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
