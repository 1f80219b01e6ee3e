//! What a service tells the service manager that started it: that it is ready (systemd's `$NOTIFY_SOCKET`).

use std::{
    ffi::OsStr,
    io,
    os::unix::{
        ffi::OsStrExt as _,
        net::{SocketAddr, UnixDatagram},
    },
};

use crate::system::machine::abstract_address;

/// Reports readiness to the socket, a path or, after `@`, an abstract name.
pub fn notify_ready(socket: &OsStr) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => abstract_address(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> Vec<u8> {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        buffer[..length].to_vec()
    }

    #[test]
    fn readiness_is_reported_to_paths() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        notify_ready(path.as_os_str()).unwrap();
        assert_eq!(received(&socket), b"READY=1");
    }

    #[test]
    #[cfg_attr(attache_portable, ignore = "only Linux has abstract names of sockets")]
    fn readiness_is_reported_to_abstract_names() {
        let name = format!("attache-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&abstract_address(name.as_bytes()).unwrap()).unwrap();
        notify_ready(OsStr::new(&format!("@{name}"))).unwrap();
        assert_eq!(received(&socket), b"READY=1");
        drop(socket);
        assert!(notify_ready(OsStr::new(&format!("@{name}"))).is_err());
    }
}
