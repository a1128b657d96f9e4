//! Text on a terminal: aligned columns that fit a width, and paragraphs.
//!
//! *Owns*: display width, alignment, wrapping, which columns stay. *May not touch*: the content.
//! The least important columns are dropped first; the last one may be wrapped; a row without
//! figures has its reason across all columns.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Spaces between two columns.
const GAP: usize = 2;
/// Before each line of a table.
const INDENT: usize = 2;
/// No table is narrower.
const WIDTH_MIN: usize = 40;
/// A name takes at most this share of the width.
const NAME_SHARE: usize = 3;

/// Columns that `text` takes on a terminal.
pub(super) fn columns(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Removes control characters: names and reasons come from outside and must not control the
/// terminal or break a row.
pub(super) fn clean(text: &str) -> String {
    let one = |c: char| match c {
        '\n' | '\t' | '\r' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
        c if c.is_control() => '?',
        c => c,
    };
    text.chars().map(one).collect()
}

/// The longest beginning of `text` within `width` columns.
fn beginning(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (index, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > width {
            return &text[..index];
        }
    }
    text
}

/// `text` shortened at its end to `width` columns.
fn cut(text: &str, width: usize) -> String {
    match columns(text) <= width {
        true => text.to_owned(),
        false => format!("{}~", beginning(text, width.saturating_sub(1))),
    }
}

/// `text` in lines of at most `width` columns, broken between words; a longer word is broken where
/// necessary.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(4);
    let mut lines = Vec::new();
    let mut line = String::new();
    for mut word in clean(text).split_whitespace() {
        if !line.is_empty() && columns(&line) + 1 + columns(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        // Without the width of the whole: a word may be long.
        while let piece = beginning(word, width)
            && piece.len() < word.len()
        {
            lines.push(piece.to_owned());
            word = &word[piece.len()..];
        }
        if !line.is_empty() && !word.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Appends `text`, wrapped: `lead` before its first line, as many spaces before the others.
pub(crate) fn paragraph(out: &mut String, width: usize, lead: &str, text: &str) {
    let indent = columns(lead);
    for (index, line) in wrap(text, width.max(WIDTH_MIN) - indent).iter().enumerate() {
        let lead = if index == 0 { lead.to_owned() } else { " ".repeat(indent) };
        out.push_str(&format!("{lead}{line}\n"));
    }
}

/// One column, a cell for each row. A column of numbers is aligned right.
struct Column {
    head: String,
    /// The columns with the lowest rank stay longest; 0 always stays.
    rank: u32,
    cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        self.cells.iter().chain([&self.head]).map(|cell| columns(cell)).max().unwrap_or(0)
    }

    fn is_number(&self) -> bool {
        let is_number = |cell: &String| {
            cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "-~<>".contains(c))
        };
        self.cells.iter().all(is_number)
    }
}

/// A table.
pub(super) struct Grid {
    columns: Vec<Column>,
    /// The text that a row has instead of its cells, beside its name.
    reasons: Vec<Option<String>>,
}

impl Grid {
    /// A table with these names as its first column.
    pub(super) fn new(head: &str, names: impl Iterator<Item = String>) -> Self {
        let cells: Vec<String> = names.map(|name| clean(&name)).collect();
        let reasons = vec![None; cells.len()];
        Self { columns: vec![Column { head: head.into(), rank: 0, cells }], reasons }
    }

    /// Adds a column to the right, unless all its cells are empty.
    pub(super) fn column(&mut self, head: &str, rank: u32, cells: impl Iterator<Item = String>) {
        let cells: Vec<String> = cells.map(|cell| clean(&cell)).collect();
        debug_assert_eq!(cells.len(), self.reasons.len(), "a cell for each row in {head}");
        if cells.iter().any(|cell| !cell.trim().is_empty()) {
            self.columns.push(Column { head: head.into(), rank, cells });
        }
    }

    /// Puts `text` into a row instead of its cells.
    pub(super) fn reason(&mut self, row: usize, text: &str) {
        self.reasons[row] = Some(text.to_owned());
    }

    /// Appends the table; returns the headings of the columns that did not fit.
    pub(super) fn render(mut self, width: usize, out: &mut String) -> Vec<String> {
        let room = width.max(WIDTH_MIN) - INDENT;
        let total = |columns: &[Column]| -> usize {
            columns.iter().map(|column| column.width() + GAP).sum::<usize>() - GAP
        };
        let name_max = (room / NAME_SHARE).max(20);
        let names = &mut self.columns[0];
        names.cells.iter_mut().for_each(|name| *name = cut(name, name_max));
        let mut dropped = Vec::new();
        while total(&self.columns) > room {
            let least = self.columns.iter().enumerate().max_by_key(|(_, column)| column.rank);
            let Some((at, _)) = least.filter(|(_, column)| column.rank > 0) else { break };
            dropped.push(self.columns.remove(at).head);
        }
        let heads = self.columns.iter().map(|column| column.head.clone()).collect();
        self.row(heads, room, out);
        for row in 0..self.reasons.len() {
            match &self.reasons[row] {
                Some(reason) => {
                    let name = &self.columns[0].cells[row];
                    let pad = self.columns[0].width().saturating_sub(columns(name)) + GAP;
                    let lead = format!("{}{name}{}", " ".repeat(INDENT), " ".repeat(pad));
                    paragraph(out, width, &lead, reason);
                }
                None => {
                    let cells = self.columns.iter().map(|column| column.cells[row].clone());
                    self.row(cells.collect(), room, out);
                }
            }
        }
        dropped
    }

    /// One row; the last cell is wrapped below itself if there is no room for it.
    fn row(&self, cells: Vec<String>, room: usize, out: &mut String) {
        let mut line = " ".repeat(INDENT);
        let last = self.columns.len() - 1;
        for (column, cell) in self.columns.iter().zip(&cells).take(last) {
            let pad = " ".repeat(column.width() - columns(cell));
            match column.is_number() {
                true => line.push_str(&format!("{pad}{cell}  ")),
                false => line.push_str(&format!("{cell}{pad}  ")),
            }
        }
        let rest = &self.columns[last];
        let left = (room + INDENT).saturating_sub(columns(&line)).max(12).min(room);
        let width = rest.width().min(left);
        let mut lines = wrap(&cells[last], width).into_iter();
        let first = lines.next().unwrap_or_default();
        let pad = if rest.is_number() { width.saturating_sub(columns(&first)) } else { 0 };
        let text = format!("{line}{}{first}", " ".repeat(pad));
        out.push_str(&format!("{}\n", cut(text.trim_end(), room + INDENT)));
        for more in lines {
            let indent = " ".repeat(columns(&line));
            out.push_str(&format!("{}\n", cut(&format!("{indent}{more}"), room + INDENT)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let texts = |texts: [&str; 3]| texts.map(str::to_owned).into_iter();
        let mut grid = Grid::new("way", texts(["new", "zeros written", "broken"]));
        grid.column("us", 0, texts(["1640", "61.1", ""]));
        grid.column("what is long", 2, texts(["aaaaaaaaaaaa", "b", ""]));
        grid.column("blank", 1, texts(["", " ", ""]));
        grid.column("after", 1, texts(["one two three", "2", ""]));
        grid.reason(2, "the kernel answered EOPNOTSUPP to every call that was made for this");
        grid
    }

    #[test]
    fn columns_line_up_the_least_important_goes_first_and_nothing_is_too_wide() {
        let mut out = String::new();
        assert!(grid().render(60, &mut out).is_empty());
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "  way              us  what is long  after");
        assert_eq!(lines[1], "  new            1640  aaaaaaaaaaaa  one two three");
        assert_eq!(lines[2], "  zeros written  61.1  b             2");
        assert!(lines[3].starts_with("  broken         the kernel answered"), "{out}");
        for width in 40..60 {
            let mut out = String::new();
            grid().render(width, &mut out);
            assert!(out.lines().all(|line| columns(line) <= width), "{width}\n{out}");
        }
        assert_eq!(grid().render(42, &mut String::new()), ["what is long"]);
    }

    #[test]
    fn wrapping_keeps_words_and_widths() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert!(wrap("  \n ", 10).is_empty());
        assert!(wrap("日本語日本語", 5).iter().all(|line| columns(line) <= 5));
        assert_eq!(cut("abcdef", 4), "abc~");
        assert_eq!(clean("a\x1b[31mb\nc\u{202e}"), "a?[31mb c?");
    }
}
