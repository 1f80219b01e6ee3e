//! The way to a proxy outside: its listener is made in the network inside, where only this process and its children
//! can connect to it, and handed out.

use std::{
    env,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::{Ipv4Addr, TcpListener},
    os::{
        fd::{AsFd, BorrowedFd, RawFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// The variables that name a proxy. Some programs read only one of the two spellings.
const VARIABLES: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
const EXCEPTIONS: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// How many listeners can be handed out.
const MAX_LISTENERS: usize = 16;

/// Makes the listeners, sends them, and tells the program that comes next where it is. For a process with one thread.
#[allow(unsafe_code, reason = "the descriptor is inherited under this number; one thread changes the environment")]
pub(super) fn send(descriptor: RawFd, ports: &[u16]) -> io::Result<()> {
    let listeners: io::Result<Vec<TcpListener>> =
        std::iter::once(&0).chain(ports).map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port))).collect();
    let listeners = listeners?;
    // SAFETY: whoever started this process left the descriptor open for it, and nobody else here uses it.
    let outside = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let handed: Vec<BorrowedFd<'_>> = listeners.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_LISTENERS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&handed)) {
        return Err(io::Error::other("too many ports lead outside"));
    }
    sendmsg(outside, &[IoSlice::new(b"l")], &mut ancillary, SendFlags::empty())?;
    rustix::io::fcntl_setfd(outside, rustix::io::FdFlags::CLOEXEC)?;
    let address = format!("http://{}", listeners[0].local_addr()?);
    // SAFETY: this process has no other thread yet.
    unsafe {
        VARIABLES.iter().for_each(|name| env::set_var(name, &address));
        // What the program and its children serve themselves, and the ports above.
        EXCEPTIONS.iter().for_each(|name| env::set_var(name, "127.0.0.1,localhost,::1"));
    }
    Ok(())
}

/// Waits for the listeners of a process that was started with [`NetworkAccess::Proxy`](crate::NetworkAccess::Proxy): the
/// proxy's, then those of the ports. Blocks until they are there, or the process has ended.
pub fn receive_listeners(inside: &UnixStream) -> io::Result<Vec<TcpListener>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_LISTENERS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let read = recvmsg(inside, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?.bytes;
    let mut listeners = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            listeners.extend(descriptors.map(TcpListener::from));
        }
    }
    if read == 0 || listeners.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process ended before its sandbox was set up"));
    }
    Ok(listeners)
}
