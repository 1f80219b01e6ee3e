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
    // RFC 5737 and RFC 3849 reserve them for documents; they are routed like others.
    let elsewhere: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    let leaves_from = |(any, target): (IpAddr, IpAddr)| {
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((target, PORT)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    elsewhere.into_iter().filter_map(leaves_from).find(|ip| !ip.is_loopback() && !ip.is_unspecified())
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
