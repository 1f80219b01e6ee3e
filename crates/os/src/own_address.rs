//! Whether an address is one of this machine's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Any: nothing is sent.
const PORT: u16 = 9;

/// Asks the system which address it would send from: to one of its own, it is that address itself.
pub fn is_own(address: IpAddr) -> bool {
    let any = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let from = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, PORT))?;
        socket.local_addr()
    };
    from().is_ok_and(|from| from.ip() == address)
}

/// The address that this machine would use to reach another network, if it has one.
pub fn outward() -> Option<IpAddr> {
    // RFC 5737 reserves it for documents.
    let elsewhere = Ipv4Addr::new(192, 0, 2, 1);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((elsewhere, PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_known() {
        assert!(is_own(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        for other in ["192.0.2.1", "10.255.255.254", "2001:db8::1"] {
            assert!(!is_own(other.parse().unwrap()), "{other}");
        }
        // Where there is no network, there is none.
        assert!(outward().is_none_or(is_own));
    }
}
