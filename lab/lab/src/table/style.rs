//! How tables are drawn.
//!
//! *Owns*: width, colours, characters. *May not touch*: content.

/// How tables are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableStyle {
    /// Whether emphasis may use colours.
    pub colour: bool,
    /// Columns of the terminal: no line is wider. Below 40 it counts as 40.
    pub width: usize,
    /// Whether rules, bars and ellipses may use Unicode. Names are always shown as they are.
    pub unicode: bool,
}

impl TableStyle {
    const WIDTH_MIN: usize = 40;

    /// The width to draw for.
    pub(super) fn columns(&self) -> usize {
        self.width.max(Self::WIDTH_MIN)
    }
}

impl Default for TableStyle {
    /// Plain ASCII, 100 columns: safe for an unknown terminal.
    fn default() -> Self {
        Self { colour: false, width: 100, unicode: false }
    }
}
