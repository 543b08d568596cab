//! Lines of cells as text.

/// Gap between columns.
const GAP: usize = 3;

/// One line of text for each line of cells, of which all have as many; columns begin below each other.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    let mut text = String::new();
    for line in lines {
        let padded = line.iter().zip(&widths);
        let padded = padded.map(|(cell, width)| format!("{cell:<0$}", width + GAP));
        text.push_str(padded.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}
