//! seccomp: parts of the kernel that no agent needs, and the kinds of sockets and programs that Landlock can't refuse.

use std::{collections::BTreeMap, io};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::{FileView, NetworkAccess, Walls};

use super::exec_once::ExecPermit;

/// Ways to other processes, to the kernel's inside, and to new namespaces, where walls could be moved.
const NEVER: [i64; 33] = [
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

/// Changes of a file by its path, which Landlock doesn't know. Inside namespaces, there are only the task's own files.
const BY_PATH: [i64; 9] = [
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    // fchmodat2, setxattrat and removexattrat, the same for every architecture.
    452,
    463,
    466,
];
#[cfg(target_arch = "x86_64")]
const ALSO_BY_PATH: [i64; 3] = [libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown];
#[cfg(not(target_arch = "x86_64"))]
const ALSO_BY_PATH: [i64; 0] = [];

/// The flags of `clone` that create namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// Sockets that reach nobody from a network of its own. Those in the file system do reach others.
const OWN_SOCKETS: [i32; 2] = [libc::AF_INET, libc::AF_INET6];

/// Kinds of sockets that programs on a shared network use.
const SHARED_SOCKETS: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

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
    refused.insert(libc::SYS_ioctl, TYPING.into_iter().map(request).collect());
    if !is_in_namespaces && walls.files == FileView::Declared {
        refused.extend(BY_PATH.into_iter().chain(ALSO_BY_PATH).map(|call| (call, Vec::new())));
    }
    if walls.network == NetworkAccess::All {
        refused.insert(libc::SYS_socket, shared_network());
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

/// What isn't refused: sockets of files, TCP, UDP, ping, and asking for the machine's addresses and routes.
fn shared_network() -> Vec<SeccompRule> {
    let mut refused = vec![none_of(&SHARED_SOCKETS)];
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
fn all(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("there are conditions")
}

/// About an argument of which the kernel looks at the lower half only.
fn condition(argument: u8, how: SeccompCmpOp, value: i32) -> SeccompCondition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, u64::from(value.unsigned_abs()))
        .expect("system calls have six arguments")
}

/// A rule about the request of an `ioctl`, of which the kernel looks at the lower half only.
fn request(value: u64) -> SeccompRule {
    let condition = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    SeccompRule::new(vec![condition.expect("system calls have six arguments")]).expect("one condition")
}

/// A rule about one argument of a call.
fn is(argument: u8, how: SeccompCmpOp, value: u64) -> SeccompRule {
    let length = if argument == 0 { SeccompCmpArgLen::Dword } else { SeccompCmpArgLen::Qword };
    let condition = SeccompCondition::new(argument, length, how, value).expect("system calls have six arguments");
    SeccompRule::new(vec![condition]).expect("one condition")
}
