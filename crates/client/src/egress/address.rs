//! Classifies addresses that are not the public internet.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// A kind of address that outsiders must not make us call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressRange {
    Loopback,
    Private,
    LinkLocal,
    /// 100.64.0.0/10, inside a provider's network.
    Shared,
    /// Where a cloud machine finds its own credentials.
    Metadata,
    Unspecified,
    Multicast,
    Documentation,
    Reserved,
    /// An IPv6 address with an embedded IPv4 address.
    Disguised,
}

/// Metadata services that hand out a machine's credentials, for every cloud with a fixed address. Some of these look
/// public.
const METADATA: [IpAddr; 8] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

// === impl AddressRange ===

impl AddressRange {
    /// `None` for a public address.
    pub fn of(address: IpAddr) -> Option<Self> {
        if METADATA.contains(&address) {
            return Some(Self::Metadata);
        }
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Option<Self> {
        Some(match address.octets() {
            [0, ..] => Self::Unspecified,
            [127, ..] => Self::Loopback,
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Self::Private,
            [100, 64..=127, ..] => Self::Shared,
            [169, 254, ..] => Self::LinkLocal,
            [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Self::Documentation,
            // Protocol assignments, 6to4 relays, benchmarking, and unassigned ranges.
            [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] | [240..=255, ..] => Self::Reserved,
            [224..=239, ..] => Self::Multicast,
            _ => return None,
        })
    }

    fn of_v6(address: Ipv6Addr) -> Option<Self> {
        let parts = address.segments();
        Some(match parts {
            [0, 0, 0, 0, 0, 0, 0, 0] => Self::Unspecified,
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Loopback,
            // Mapped, compatible and translated forms, 6to4, Teredo: each leads to an IPv4 address.
            [0, 0, 0, 0, 0 | 0xffff, 0 | 0xffff, _, _] | [0x2002, ..] | [0x2001, 0, ..] => Self::Disguised,
            // NAT64: a network without IPv4 reaches the public internet in this form. Only public addresses are
            // accepted.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                let [a, b, c, d] = (u32::from(high) << 16 | u32::from(low)).to_be_bytes();
                return Self::of(IpAddr::V4(Ipv4Addr::new(a, b, c, d))).map(|_| Self::Disguised);
            }
            [0x64, 0xff9b, ..] => Self::Disguised,
            // Tunnels inside an organization (ISATAP).
            [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => Self::Disguised,
            [0xfc00..=0xfdff, ..] => Self::Private,
            [0xfe80..=0xfebf, ..] => Self::LinkLocal,
            [0xfec0..=0xfeff, ..] => Self::Private,
            [0xff00..=0xffff, ..] => Self::Multicast,
            [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Self::Documentation,
            [0x2001, 0..=0x1ff, ..] => Self::Reserved,
            [0x2000..=0x3fff, ..] => return None,
            _ => Self::Reserved,
        })
    }

    /// No rule can allow these: they name no machine, or hide which one.
    pub const fn is_never_called(self) -> bool {
        matches!(self, Self::Unspecified | Self::Multicast | Self::Disguised)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "this machine itself (loopback)",
            Self::Private => "a private network",
            Self::LinkLocal => "the local link",
            Self::Shared => "a provider's internal network (100.64.0.0/10)",
            Self::Metadata => "a cloud's metadata service",
            Self::Unspecified => "the unspecified address",
            Self::Multicast => "a multicast group",
            Self::Documentation => "an address for documentation",
            Self::Reserved => "a reserved address",
            Self::Disguised => "an IPv4 address embedded in IPv6",
        })
    }
}
