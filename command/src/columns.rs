//! Plain tables, and numbers for people.
//!
//! *Owns*: the width of columns. *May not touch*: their contents.

use unicode_width::UnicodeWidthStr as _;

/// Rows under a heading, each column as wide as its contents. Columns of numbers are aligned right.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let all = || {
        std::iter::once(heading.iter().map(|cell| (*cell).to_owned()).collect())
            .chain(rows.iter().cloned())
    };
    let is_number = |column: usize| {
        let cell = |row: &Vec<String>| {
            row[column].starts_with(|first: char| first.is_ascii_digit() || first == '-')
        };
        !rows.is_empty() && rows.iter().all(cell)
    };
    let numbers: Vec<bool> = (0..heading.len()).map(is_number).collect();
    let width =
        |column: usize| all().map(|row: Vec<String>| row[column].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut text = String::new();
    for row in all() {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let space = " ".repeat(widths[column] - cell.width());
            let (before, after) =
                if numbers[column] { (space, String::new()) } else { (String::new(), space) };
            let gap = if column == 0 { "" } else { "  " };
            line.push_str(&format!("{gap}{before}{cell}{after}"));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A size for people.
pub(crate) fn human(bytes: u64) -> String {
    let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// `1 record`, `2 records`.
pub(crate) fn plural(count: u64, word: &str) -> String {
    if count == 1 { format!("{count} {word}") } else { format!("{count} {word}s") }
}

/// First and last LSN of a range that may be empty.
pub(crate) fn range(first: u64, last: u64) -> String {
    if last < first { "none".into() } else { format!("{first} to {last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows = [vec!["1".to_owned(), "a".to_owned()], vec!["200".to_owned(), "b".to_owned()]];
        assert_eq!(table(&["n", "name"], &rows), "  n  name\n  1  a\n200  b\n");
        assert_eq!(table(&["n"], &[]), "n\n");
    }

    #[test]
    fn sizes_for_people() {
        let said = [0, 1023, 1024, 1536, 64 << 20, 3 << 40].map(human);
        assert_eq!(said, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "64 MiB", "3 TiB"]);
    }
}
