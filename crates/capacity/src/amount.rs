//! Amounts as people read them.

use crate::Quantity;
use crate::requests::resource::{CPU, EPHEMERAL_STORAGE, HUGEPAGES, MEMORY};

/// Which way an amount is rounded where it is shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// What there is: never more than the truth.
    Down,
    /// What is needed: never less than the truth.
    Up,
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// An amount of `resource` in a sentence: CPUs as a decimal (`4.015`), bytes with at most two
/// decimals of the largest unit (`4.35Gi`), anything else as Kubernetes writes it.
///
/// Where less is there than is needed, what is there rounded [down](Rounding::Down) reads as less
/// than what is needed rounded [up](Rounding::Up).
pub fn amount(resource: &str, quantity: Quantity, rounding: Rounding) -> String {
    let is_bytes =
        [MEMORY, EPHEMERAL_STORAGE].contains(&resource) || resource.starts_with(HUGEPAGES);
    if resource == CPU {
        decimal(quantity.milli(), 3)
    } else if is_bytes {
        bytes(quantity.milli(), rounding)
    } else {
        quantity.to_string()
    }
}

fn bytes(milli: i128, rounding: Rounding) -> String {
    let mut unit = 1000;
    let mut suffixes = BINARY.iter().peekable();
    let mut suffix = "";
    while let Some(this) = suffixes.next() {
        suffix = this;
        if milli.abs() < unit * 1024 || suffixes.peek().is_none() {
            break;
        }
        unit *= 1024;
    }
    let hundredths = milli * 100;
    let hundredths = match rounding {
        Rounding::Down => hundredths.div_euclid(unit),
        Rounding::Up => -(-hundredths).div_euclid(unit),
    };
    format!("{}{suffix}", decimal(hundredths, 2))
}

/// `number` over ten to the power of `places`, without zeros at its end.
fn decimal(number: i128, places: usize) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", number.unsigned_abs(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(resource: &str, text: &str) -> (String, String) {
        let quantity = text.parse().unwrap();
        let amount = |rounding| amount(resource, quantity, rounding);
        (amount(Rounding::Down), amount(Rounding::Up))
    }

    fn same(text: &str) -> (String, String) {
        (text.to_owned(), text.to_owned())
    }

    #[test]
    fn cpus_are_decimals() {
        assert_eq!(read("cpu", "4"), same("4"));
        assert_eq!(read("cpu", "4015m"), same("4.015"));
        assert_eq!(read("cpu", "10m"), same("0.01"));
        assert_eq!(read("cpu", "0"), same("0"));
    }

    #[test]
    fn bytes_have_a_unit_and_two_decimals() {
        assert_eq!(read("memory", "8Gi"), same("8Gi"));
        assert_eq!(
            read("memory", "4664066049"),
            ("4.34Gi".into(), "4.35Gi".into())
        );
        assert_eq!(read("hugepages-2Mi", "1536Mi"), same("1.5Gi"));
        assert_eq!(read("ephemeral-storage", "1023"), same("1023"));
        assert_eq!(read("memory", "2048Pi"), same("2Ei"));
        assert_eq!(read("memory", "2048Ei"), same("2048Ei"));
    }

    #[test]
    fn other_resources_are_written_as_they_are() {
        assert_eq!(read("nvidia.com/gpu", "2"), same("2"));
    }

    #[test]
    fn a_debt_has_a_sign() {
        let debt = Quantity::units(1) - Quantity::units(4 << 30);
        assert_eq!(amount("memory", debt, Rounding::Down), "-4Gi");
        assert_eq!(
            amount("cpu", Quantity::from_milli(-1500), Rounding::Up),
            "-1.5"
        );
    }
}
