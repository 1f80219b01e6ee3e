//! What can be done to a file without a right that Landlock knows: by its path although it can't be seen, or through a
//! descriptor although it can only be read. seccomp refuses these calls where there are no namespaces.

use std::collections::BTreeMap;

use seccompiler::{SeccompCmpOp, SeccompRule};

use super::seccomp::{all, condition, is, request, request_of};

/// Mode, owner, extended attributes and times, and watching for what happens to a file. A filter can't see which file it is, so
/// a process can't change those of its own files either.
const ATTRIBUTES: [i64; 16] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_fanotify_mark,
    // fchmodat2, setxattrat, removexattrat and file_setattr, the same for every architecture.
    452,
    463,
    466,
    469,
];
#[cfg(target_arch = "x86_64")]
const OLDER_ATTRIBUTES: [i64; 6] =
    [libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_ATTRIBUTES: [i64; 0] = [];

/// Requests that change a file through a descriptor that may only be for reading: its flags (of 64 and of 32 bits), its project,
/// its version, the encryption of a folder, and verity, after which nobody can write to the file.
const FILE_REQUESTS: [u64; 7] =
    [0x4008_6602, 0x4004_6602, 0x401c_5820, 0x4008_7602, 0x4004_7602, 0x800c_6613, 0x4080_6685];

/// The group of btrfs, which makes and removes subvolumes in any folder that can be opened.
const BTRFS: u64 = 0x9400;
/// In the same group, and needed to copy files: FICLONE, FICLONERANGE and FIDEDUPERANGE.
const CLONING: [u64; 3] = [0x4004_9409, 0x4020_940d, 0xc018_9436];

/// Calls, each with the cases in which it is refused (none: always).
pub(super) fn calls() -> BTreeMap<i64, Vec<SeccompRule>> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        ATTRIBUTES.into_iter().chain(OLDER_ATTRIBUTES).map(|call| (call, Vec::new())).collect();
    // Of an open file, to now: `touch` does that, and so does whoever reads it.
    refused.insert(libc::SYS_utimensat, vec![is(1, SeccompCmpOp::Ne, 0), is(2, SeccompCmpOp::Ne, 0)]);
    refused
}

/// Requests of `ioctl`.
pub(super) fn requests() -> Vec<SeccompRule> {
    let of_btrfs = [request_of(SeccompCmpOp::MaskedEq(0xff00), BTRFS)].into_iter();
    let others = of_btrfs.chain(CLONING.map(|known| request_of(SeccompCmpOp::Ne, known)));
    FILE_REQUESTS.into_iter().map(request).chain([all(others.collect())]).collect()
}

/// A lease makes others wait for most of a minute when they open the file, and notices tell what happens in a folder. Both
/// need no more than reading it.
pub(super) fn leases() -> BTreeMap<i64, Vec<SeccompRule>> {
    let refused = [libc::F_SETLEASE, libc::F_NOTIFY].map(|command| all(vec![condition(1, SeccompCmpOp::Eq, command)]));
    BTreeMap::from([(libc::SYS_fcntl, refused.into())])
}
