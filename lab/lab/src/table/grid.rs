//! Aligned columns that fit a width: the least important columns are dropped, and no row is
//! wrapped.
//!
//! *Owns*: column widths, alignment, which columns stay. *May not touch*: their content. There is
//! no table crate for this: a row's reason spans the columns, cells are tinted after they are
//! measured, and columns are dropped by importance, which the crates do only with their terminal
//! features.

use super::style::TableStyle;
use super::text::{Tint, clean, columns, cut_end, cut_middle, paint, wrap};

/// Spaces between two columns.
const GAP: usize = 2;
/// The first column (names) is never shortened below this.
const NAME_MIN: usize = 12;

/// One cell: lines of text with one tint.
#[derive(Debug, Clone, Default)]
pub(super) struct Text {
    lines: Vec<String>,
    tint: Tint,
}

impl Text {
    pub(super) fn new(tint: Tint, text: &str) -> Self {
        Self { lines: vec![clean(text)], tint }
    }

    /// A cell of several lines.
    pub(super) fn lines<S: AsRef<str>>(lines: &[S]) -> Self {
        Self { lines: lines.iter().map(|line| clean(line.as_ref())).collect(), tint: Tint::Plain }
    }

    fn is_blank(&self) -> bool {
        self.lines.iter().all(|line| line.trim().is_empty())
    }

    fn columns(&self) -> usize {
        self.lines.iter().map(|line| columns(line)).max().unwrap_or(0)
    }

    /// The decimal point and what follows it.
    fn fraction_columns(&self) -> usize {
        let fraction = |line: &String| line.find('.').map_or(0, |at| columns(&line[at..]));
        self.lines.iter().map(fraction).max().unwrap_or(0)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::new(Tint::Plain, &text)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(Tint::Plain, text)
    }
}

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
    /// By the decimal point.
    Point,
}

/// One column with its cells, one for each row of the grid.
#[derive(Debug, Clone)]
pub(super) struct Column {
    head: String,
    /// Shared heading over neighbours of the same group, in ever shorter forms.
    group: Vec<String>,
    align: Align,
    /// Importance: columns with the lowest rank stay longest; 0 always stays.
    rank: u32,
    cells: Vec<Text>,
    /// The column that replaces it if it does not fit, or from the other's rank on until there is
    /// room for this one.
    instead: Option<Box<Column>>,
}

impl Column {
    pub(super) fn new(
        head: &str,
        align: Align,
        rank: u32,
        cells: impl Iterator<Item = Text>,
    ) -> Self {
        let mut cells: Vec<Text> = cells.collect();
        if align == Align::Point {
            let most = cells.iter().map(Text::fraction_columns).max().unwrap_or(0);
            for cell in &mut cells {
                let pad = " ".repeat(most - cell.fraction_columns());
                cell.lines.iter_mut().for_each(|line| line.push_str(&pad));
            }
        }
        Self { head: head.into(), group: Vec::new(), align, rank, cells, instead: None }
    }

    /// Adds a heading that is shared with neighbours of the same group; shorter forms follow the
    /// first.
    pub(super) fn group(mut self, forms: &[String]) -> Self {
        self.group = forms.to_vec();
        self
    }

    /// Adds a narrower column that may replace it.
    pub(super) fn instead(mut self, other: Self) -> Self {
        self.instead = Some(Box::new(other));
        self
    }

    /// Whether any cell has content.
    pub(super) fn says_something(&self) -> bool {
        self.cells.iter().any(|cell| !cell.is_blank())
    }

    fn columns(&self) -> usize {
        self.cells.iter().map(Text::columns).chain([columns(&self.head)]).max().unwrap_or(0)
    }
}

/// A grid of columns.
#[derive(Debug, Default)]
pub(super) struct Grid {
    columns: Vec<Column>,
    /// Rows whose text replaces every column except the first.
    spans: Vec<(usize, String, Text)>,
    rows: usize,
    indent: usize,
}

impl Grid {
    pub(super) fn new(rows: usize, indent: usize) -> Self {
        Self { columns: Vec::new(), spans: Vec::new(), rows, indent }
    }

    /// Adds a column to the right. A column without content is left out, except the first.
    pub(super) fn push(&mut self, column: Column) {
        debug_assert_eq!(column.cells.len(), self.rows, "a cell for each row in {}", column.head);
        if self.columns.is_empty() || column.says_something() {
            self.columns.push(column);
        }
    }

    /// Puts `text` into `row` beside `name`, instead of the row's cells. Such a name may be longer
    /// than the column.
    pub(super) fn span(&mut self, row: usize, name: &str, text: Text) {
        self.spans.push((row, clean(name), text));
    }

    /// Appends the table to `out`; returns the headings of the dropped columns.
    pub(super) fn render(&self, style: &TableStyle, out: &mut String) -> Vec<String> {
        let room = style.columns().saturating_sub(self.indent);
        let (kept, dropped) = self.fit(room);
        let mut widths: Vec<usize> = kept.iter().map(|column| column.columns()).collect();
        let total = total(&widths);
        if let Some(first) = widths.first_mut() {
            let over = total.saturating_sub(room);
            *first = first.saturating_sub(over).max(NAME_MIN.min(*first));
        }
        self.heads(style, &kept, &widths, out);
        for row in 0..self.rows {
            match self.spans.iter().find(|(at, ..)| *at == row) {
                Some((_, name, text)) => {
                    self.span_row(style, widths.first().copied(), name, text, out)
                }
                None => self.row(style, &kept, &widths, row, out),
            }
        }
        dropped
    }

    /// The width of all of these and `more`.
    pub(super) fn width_with(&self, more: &[&Column]) -> usize {
        let widths: Vec<usize> =
            self.columns.iter().chain(more.iter().copied()).map(Column::columns).collect();
        self.indent + total(&widths)
    }

    /// The columns that fit, in their order. They are chosen by importance; if one does not fit,
    /// the next is tried.
    fn fit(&self, room: usize) -> (Vec<&Column>, Vec<String>) {
        let mut offers: Vec<(u32, usize, &Column)> = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            offers.extend(column.instead.as_deref().map(|short| (short.rank, index, short)));
            offers.push((column.rank, index, column));
        }
        offers.sort_by_key(|(rank, index, _)| (*rank, *index));
        let mut kept: Vec<Option<&Column>> = vec![None; self.columns.len()];
        let mut used = 0;
        for (rank, index, column) in offers {
            let before = kept[index].map_or(0, |short| short.columns() + GAP);
            let with = used - before + column.columns() + GAP;
            // Every column is counted with a gap, but the last one has none.
            if with <= room + GAP || rank == 0 {
                used = with;
                kept[index] = Some(column);
            }
        }
        let gone = self.columns.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
        let dropped = gone.map(|(column, _)| column.head.clone()).collect();
        (kept.into_iter().flatten().collect(), dropped)
    }

    fn heads(&self, style: &TableStyle, kept: &[&Column], widths: &[usize], out: &mut String) {
        if kept.iter().any(|column| !column.group.is_empty()) {
            let line = self.group_line(style, kept, widths);
            self.line(style, &[(line.trim_end().to_owned(), Tint::Dim)], out);
        }
        let heads: Vec<_> = kept
            .iter()
            .zip(widths)
            .map(|(column, width)| {
                (aligned(style, &column.head, column.align, *width), Tint::Strong)
            })
            .collect();
        self.line(style, &heads, out);
    }

    fn group_line(&self, style: &TableStyle, kept: &[&Column], widths: &[usize]) -> String {
        let rule = if style.unicode { "─" } else { "-" };
        let mut line = String::new();
        let mut index = 0;
        while index < kept.len() {
            let group = &kept[index].group;
            let len =
                kept[index..].iter().take_while(|column| column.group == *group).count().max(1);
            let span = total(&widths[index..index + len]);
            if group.is_empty() {
                line.push_str(&" ".repeat(span));
            } else {
                let form = group.iter().find(|form| columns(form) <= span);
                let form = form.map_or_else(|| " ".repeat(span.min(1)), |form| clean(form));
                let spare = span - columns(&form).min(span);
                let (left, right) = (spare / 2, spare - spare / 2);
                let side = |n: usize, before: bool| match n {
                    n if n < 3 => " ".repeat(n),
                    n if before => format!("{} ", rule.repeat(n - 1)),
                    n => format!(" {}", rule.repeat(n - 1)),
                };
                line.push_str(&format!("{}{form}{}", side(left, true), side(right, false)));
            }
            index += len;
            line.push_str(&" ".repeat(GAP));
        }
        line
    }

    fn row(
        &self,
        style: &TableStyle,
        kept: &[&Column],
        widths: &[usize],
        row: usize,
        out: &mut String,
    ) {
        let height =
            kept.iter().map(|column| column.cells[row].lines.len()).max().unwrap_or(1).max(1);
        for line in 0..height {
            let cells: Vec<_> = kept
                .iter()
                .zip(widths)
                .map(|(column, width)| {
                    let cell = &column.cells[row];
                    let text = cell.lines.get(line).map_or("", String::as_str);
                    (aligned(style, text, column.align, *width), cell.tint)
                })
                .collect();
            self.line(style, &cells, out);
        }
    }

    /// The row's name, and beside it the text, wrapped to the rest of the width.
    fn span_row(
        &self,
        style: &TableStyle,
        width: Option<usize>,
        name: &str,
        text: &Text,
        out: &mut String,
    ) {
        let half = style.columns() / 2;
        let width = columns(name).min(half).max(width.unwrap_or(0));
        let room = style.columns().saturating_sub(self.indent + width + GAP);
        for (index, line) in wrap(&text.lines.join(" "), room).into_iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            self.line(
                style,
                &[(aligned(style, name, Align::Left, width), Tint::Plain), (line, text.tint)],
                out,
            );
        }
    }

    /// One line: trimmed at its end, and shortened if it is still too wide.
    fn line(&self, style: &TableStyle, cells: &[(String, Tint)], out: &mut String) {
        let mut room = style.columns().saturating_sub(self.indent);
        let last = cells.iter().rposition(|(text, _)| !text.trim().is_empty());
        let mut line = String::new();
        for (index, (text, tint)) in cells.iter().enumerate().take(last.map_or(0, |last| last + 1))
        {
            let text = if Some(index) == last { text.trim_end() } else { text.as_str() };
            let text = cut_end(style, text, room);
            room = room.saturating_sub(columns(&text) + GAP);
            let body = text.trim_start();
            line.push_str(&text[..text.len() - body.len()]);
            let shown = body.trim_end();
            line.push_str(&paint(style, *tint, shown));
            line.push_str(&body[shown.len()..]);
            if room == 0 {
                break;
            }
            if Some(index) != last {
                line.push_str(&" ".repeat(GAP));
            }
        }
        if last.is_some() {
            out.push_str(&" ".repeat(self.indent));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

fn aligned(style: &TableStyle, text: &str, align: Align, width: usize) -> String {
    let text = cut_middle(style, text, width);
    let pad = " ".repeat(width.saturating_sub(columns(&text)));
    match align {
        Align::Left => format!("{text}{pad}"),
        Align::Right | Align::Point => format!("{pad}{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(width: usize) -> TableStyle {
        TableStyle { colour: false, width, unicode: false }
    }

    fn cells(texts: &[&str]) -> impl Iterator<Item = Text> {
        texts.iter().map(|text| Text::from(*text)).collect::<Vec<_>>().into_iter()
    }

    fn grid() -> Grid {
        let mut grid = Grid::new(3, 1);
        grid.push(Column::new("way", Align::Left, 0, cells(&["new", "zeros written", ""])));
        grid.push(
            Column::new("us", Align::Point, 0, cells(&["1640", "61.1", ""]))
                .group(&["a long group".into()]),
        );
        grid.push(Column::new("what is long", Align::Left, 2, cells(&["aaaaaaaaaaaa", "b", ""])));
        let short = Column::new("s", Align::Left, 1, cells(&["1", "2", ""]));
        let full = Column::new("speedup", Align::Left, 1, cells(&["1 [1..1]", "2 [2..2]", ""]));
        grid.push(full.instead(short));
        grid.push(Column::new("blank", Align::Left, 1, cells(&["", " ", ""])));
        grid.span(
            2,
            "broken",
            Text::from("the kernel answered EOPNOTSUPP to every call that it was asked for here"),
        );
        grid
    }

    #[test]
    fn columns_line_up_by_their_points() {
        let mut out = String::new();
        assert!(grid().render(&style(60), &mut out).is_empty());
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[1], " way                us  what is long  speedup");
        assert_eq!(lines[2], " new            1640    aaaaaaaaaaaa  1 [1..1]");
        assert_eq!(lines[3], " zeros written    61.1  b             2 [2..2]");
        assert!(lines[4].starts_with(" broken         the kernel"), "{out}");
    }

    #[test]
    fn the_least_important_go_first_and_nothing_is_too_wide() {
        for width in 40..60 {
            let mut out = String::new();
            grid().render(&style(width), &mut out);
            assert!(out.lines().all(|line| columns(line) <= width), "{width}\n{out}");
        }
        let mut out = String::new();
        assert_eq!(grid().render(&style(40), &mut out), ["what is long"]);
        assert!(out.contains("1 [1..1]"), "{out}");
    }

    #[test]
    fn colour_changes_no_column() {
        let (mut plain, mut tinted) = (String::new(), String::new());
        grid().render(&style(60), &mut plain);
        grid().render(&TableStyle { colour: true, ..style(60) }, &mut tinted);
        assert_ne!(plain, tinted);
        for code in ["\x1b[1m", "\x1b[2m", "\x1b[0m"] {
            tinted = tinted.replace(code, "");
        }
        assert_eq!(plain, tinted);
    }
}
