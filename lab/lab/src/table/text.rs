//! Text on a terminal: its width, where it is shortened or wrapped, its emphasis.
//!
//! *Owns*: display width, wrapping, shortening, tints. *May not touch*: the content.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::style::TableStyle;

/// Emphasis; it never carries a meaning alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tint {
    #[default]
    Plain,
    /// The best of its column.
    Good,
    /// A broken claim, an invalid cell.
    Bad,
    /// A detail that readers may skip.
    Dim,
    /// A heading.
    Strong,
}

/// `text` with its tint, if the style has colours.
pub(super) fn paint(style: &TableStyle, tint: Tint, text: &str) -> String {
    let code = match tint {
        Tint::Plain => return text.to_owned(),
        Tint::Good => "32",
        Tint::Bad => "31;1",
        Tint::Dim => "2",
        Tint::Strong => "1",
    };
    if style.colour && !text.is_empty() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Columns that `text` takes on a terminal.
pub(super) fn columns(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Removes control characters: names and reasons come from outside and must not control the
/// terminal or break a row.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' | '\r' => ' ',
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
            c if c.is_control() => '?',
            c => c,
        })
        .collect()
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

/// The longest end of `text` within `width` columns.
fn ending(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (index, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > width {
            return &text[index + c.len_utf8()..];
        }
    }
    text
}

/// `text` shortened in its middle to `width` columns: both the beginning and the end of a name
/// identify it.
pub(super) fn cut_middle(style: &TableStyle, text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mark = if style.unicode { "…" } else { "~" };
    let room = width.saturating_sub(1);
    let head = room.div_ceil(2);
    format!("{}{mark}{}", beginning(text, head), ending(text, room - head))
}

/// `text` shortened at its end to `width` columns.
pub(super) fn cut_end(style: &TableStyle, text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mark = if style.unicode { "…" } else { "~" };
    format!("{}{mark}", beginning(text, width.saturating_sub(1)))
}

/// `text` in lines of at most `width` columns, broken between words; a longer word is broken where
/// necessary.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(4);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in clean(text).split_whitespace() {
        let mut word = word;
        if !line.is_empty() && columns(&line) + 1 + columns(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        while columns(word) > width {
            let piece = beginning(word, width);
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

/// Appends `text` to `out`, wrapped to the style's width: `first` before its first line, as many
/// spaces before the others.
pub(super) fn paragraph(out: &mut String, style: &TableStyle, first: &str, text: &str, tint: Tint) {
    let indent = columns(first);
    for (index, line) in wrap(text, style.columns().saturating_sub(indent)).iter().enumerate() {
        let lead = if index == 0 { first.to_owned() } else { " ".repeat(indent) };
        out.push_str(&paint(style, tint, &format!("{lead}{line}")));
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASCII: TableStyle = TableStyle { colour: false, width: 80, unicode: false };

    #[test]
    fn wrapping_keeps_words_and_widths() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert!(wrap("  \n ", 10).is_empty());
        assert!(wrap("日本語日本語", 5).iter().all(|line| columns(line) <= 5));
    }

    #[test]
    fn cutting_keeps_both_ends() {
        assert_eq!(cut_middle(&ASCII, "reuse+zero-range o-dsync", 13), "reuse+~-dsync");
        assert_eq!(cut_middle(&ASCII, "short", 13), "short");
        assert_eq!(cut_end(&ASCII, "abcdef", 4), "abc~");
        assert!(columns(&cut_middle(&ASCII, "日本語日本語日本語", 8)) <= 8);
        assert_eq!(cut_middle(&ASCII, "abc", 0), "~");
    }

    #[test]
    fn what_comes_from_outside_steers_nothing() {
        assert_eq!(clean("a\x1b[31mb\nc\u{202e}"), "a?[31mb c?");
    }
}
