//! What the kernel tells about the machine and its processes (`/proc`).

use std::{
    fs, io,
    os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr},
    path::PathBuf,
};

use rustix::process::Pid;

/// Whether there can be control groups.
pub(crate) const HAS_CONTROL_GROUPS: bool = true;

/// The machine's memory in bytes.
pub(crate) fn memory() -> Option<u64> {
    total_memory(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// From `MemTotal:       24612345 kB`.
fn total_memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// The address of a socket that has a name, but no file.
pub(crate) fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// Makes every process that is orphaned below this one a child of it. Returns whether the system can do that. Safe to
/// call between fork and exec.
pub fn inherit_orphans() -> io::Result<bool> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(true)
}

/// Whether this process was started so that it survives the end of its terminal, as with `nohup`.
pub fn ignores_hang_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    // The signals are counted from 1, and SIGHUP is the first.
    ignored.is_none_or(|ignored| ignored & 1 == 1)
}

/// Keeps other processes of the user from reading the memory and the open files of this one.
pub fn protect_memory() {
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

/// The parent of a process, and its program.
pub fn parent_and_program(process: Pid) -> Option<(u32, PathBuf)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    Some((parent, fs::read_link(format!("/proc/{}/exe", process.as_raw_nonzero())).ok()?))
}

/// Whether a process runs. One that nobody waited for is still listed, but dead.
pub fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z')))
}

/// How much memory a process uses, in KiB.
pub fn resident_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())
}

/// The program that listens on a port, if this user can see it.
pub fn listener(port: u16) -> Option<String> {
    let mut sockets = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let inodes = text.lines().filter_map(|line| listening_inode(line, port));
        sockets.extend(inodes.map(|inode| format!("socket:[{inode}]")));
    }
    for process in fs::read_dir("/proc").ok()?.flatten() {
        // `/proc` also contains entries such as `self` that aren't processes.
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        let has_it = files
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|target| target.to_str().is_some_and(|target| sockets.iter().any(|socket| socket == target)));
        if has_it {
            let name = fs::read_to_string(process.path().join("comm")).ok()?;
            return Some(format!("{}, process {id}", name.trim()));
        }
    }
    None
}

/// The inode in a line of `/proc/net/tcp`, if its socket listens on the port.
fn listening_inode(line: &str, port: u16) -> Option<&str> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace();
    let (_, local) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    (state == LISTEN && u16::from_str_radix(local, 16) == Ok(port)).then(|| fields.nth(5)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_parsed() {
        assert_eq!(total_memory("MemTotal:       24612345 kB\nMemFree: 1 kB\n"), Some(24_612_345 * 1024));
        assert!(memory().unwrap() > 1 << 20);
    }

    #[test]
    fn the_program_that_uses_a_port_is_named() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = listener(socket.local_addr().unwrap().port()).unwrap();
        assert!(owner.ends_with(&format!("process {}", std::process::id())), "{owner}");
    }
}
