//! A flat list of named figures, printed for people and written as one JSON object.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;

/// Named numbers; the unit is the end of the name.
#[derive(Debug, Default)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// Keeps a figure and prints it.
    pub fn add(&mut self, name: &str, value: f64) {
        println!("{name:<52} {value:>10.2}");
        self.0.insert(name.to_owned(), value);
    }

    /// Keeps the median of some measurements, and prints them all.
    pub fn add_median(&mut self, name: &str, values: &[f64]) {
        let all: Vec<String> = values.iter().map(|value| format!("{value:.1}")).collect();
        self.add(name, median(values));
        println!("{:<52} {:>10}", "", all.join(" "));
    }

    /// A figure that was added.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Writes them as a flat JSON object.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.0)?;
        std::fs::write(file, text + "\n").with_context(|| format!("write {}", file.display()))
    }
}

/// The middle value; of an even number of values the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(below), Some(above)) if sorted.len().is_multiple_of(2) => {
            f64::midpoint(*below, *above)
        }
        (_, Some(value)) => *value,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
    }
}
