//! IPv4 ranges.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An IPv4 range such as `10.200.0.0/16`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    first: u32,
    prefix: u8,
}

/// The text is not an IPv4 range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not an IPv4 range such as 10.200.0.0/16")]
pub struct NotACidr(String);

impl Cidr {
    /// Whether the two share an address.
    pub fn overlaps(self, other: Self) -> bool {
        let mask = mask(self.prefix.min(other.prefix));
        self.first & mask == other.first & mask
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

impl FromStr for Cidr {
    type Err = NotACidr;

    fn from_str(text: &str) -> Result<Self, NotACidr> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let prefix: u8 = prefix.parse().ok().filter(|p| *p <= 32)?;
            let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
            Some(Self {
                first: address & mask(prefix),
                prefix,
            })
        };
        parse().ok_or_else(|| NotACidr(text.to_owned()))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.first), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_when_one_holds_the_other() {
        let parse = |text: &str| text.parse::<Cidr>().unwrap();
        assert!(parse("10.0.0.0/8").overlaps(parse("10.200.0.0/16")));
        assert!(parse("10.200.1.0/24").overlaps(parse("10.200.0.0/16")));
        assert!(!parse("10.200.0.0/16").overlaps(parse("10.201.0.0/16")));
        assert!(parse("0.0.0.0/0").overlaps(parse("192.0.2.0/24")));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["10.0.0.0", "10.0.0.0/33", "fd00::/64", "x/8", ""] {
            assert_eq!(text.parse::<Cidr>(), Err(NotACidr(text.to_owned())));
        }
    }
}
