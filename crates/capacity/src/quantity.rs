//! Kubernetes quantities, kept in thousandths so that `100m` and `8Gi` are exact.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::str::FromStr;

/// An amount of a resource, in thousandths of its unit (milli-CPUs, milli-bytes).
///
/// Grammar: Kubernetes `resource.Quantity` (decimal and binary suffixes, `m`, `u`, `n`,
/// exponents), without a sign: nothing is requested or offered below zero. What is finer than a
/// thousandth is rounded up, as the scheduler does (`MilliValue`).
///
/// Sums and differences are exact, and differences may be negative. They stop at the ends of the
/// range, 10^35 units, instead of overflowing: Kubernetes stores nothing near it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// The text is not a quantity.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a quantity such as 8Gi, 500m or 4")]
pub struct NotAQuantity(String);

impl Quantity {
    /// So many whole units: CPUs or bytes.
    pub const fn units(units: u64) -> Self {
        Self(units as i128 * 1000)
    }

    /// So many thousandths of a unit.
    pub const fn from_milli(milli: i128) -> Self {
        Self(milli)
    }

    /// Whole units, rounded up.
    pub const fn ceil(self) -> i128 {
        (self.0 + 999).div_euclid(1000)
    }

    /// Whole units, rounded up, as a quantity.
    #[must_use]
    pub const fn whole(self) -> Self {
        Self(self.ceil() * 1000)
    }

    /// The amount in thousandths.
    pub const fn milli(self) -> i128 {
        self.0
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Quantity {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(i128::from(times)))
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

const SUFFIXES: [(&str, i128); 13] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
    ("", 1),
];

impl FromStr for Quantity {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        parse(text)
            .map(Self)
            .ok_or_else(|| NotAQuantity(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<i128> {
    for (suffix, divisor) in [("m", 1), ("u", 1_000), ("n", 1_000_000)] {
        if let Some(number) = text.strip_suffix(suffix) {
            return Some(up(decimal(number, 1)?, divisor));
        }
    }
    if let Some((mantissa, exponent)) = text.split_once(['e', 'E'])
        && let Ok(exponent) = exponent.parse::<u32>()
        && exponent <= 18
    {
        return decimal(mantissa, 1000 * 10_i128.pow(exponent));
    }
    let (suffix, factor) = SUFFIXES.iter().find(|(suffix, _)| text.ends_with(suffix))?;
    decimal(text.strip_suffix(suffix)?, factor * 1000)
}

/// `text` times `factor`, rounded up as Kubernetes does.
fn decimal(text: &str, factor: i128) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.len() <= 18 && part.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let number: i128 = format!("{whole}{fraction}").parse().ok()?;
    let product = number.checked_mul(factor)?;
    Some(up(product, scale))
}

/// `number / divisor`, rounded up; neither is negative.
const fn up(number: i128, divisor: i128) -> i128 {
    (number + divisor - 1) / divisor
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 % 1000 != 0 {
            return write!(f, "{}m", self.0);
        }
        let units = self.0 / 1000;
        for (suffix, factor) in SUFFIXES[..4].iter().rev() {
            if units != 0 && units % factor == 0 {
                return write!(f, "{}{suffix}", units / factor);
            }
        }
        write!(f, "{units}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare_over_their_suffixes() {
        let q = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!(q("8Gi"), q("8192Mi"));
        assert_eq!(q("1e3"), q("1k"));
        assert_eq!(q("0.5"), q("500m"));
        assert_eq!(q("1.5Gi").ceil(), 1_610_612_736);
        assert!(q("1G") < q("1Gi"));
        assert_eq!(q("8192Mi").to_string(), "8Gi");
        assert_eq!(q("15m").to_string(), "15m");
    }

    #[test]
    fn what_is_finer_than_a_thousandth_is_rounded_up() {
        let milli = |text: &str| text.parse::<Quantity>().unwrap().milli();
        assert_eq!(milli("1u"), 1);
        assert_eq!(milli("1500u"), 2);
        assert_eq!(milli("250000001n"), 251);
        assert_eq!(milli("0n"), 0);
        assert_eq!(milli("0.0001"), 1);
    }

    #[test]
    fn sums_are_exact_and_differences_may_be_negative() {
        let q = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!(q("4") + q("15m"), q("4015m"));
        assert_eq!(q("0.1") * 10, q("1"));
        assert_eq!((q("1") - q("4Gi")).milli(), 1000 - (4_i128 << 30) * 1000);
        let huge = Quantity::from_milli(i128::MAX);
        assert_eq!(huge + huge, huge);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "8G1", "", "Gi", "1..2", "-1", "1e99", "0x1", "1Ki1", ".", "1 Gi", "u", "1mu",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }
}
