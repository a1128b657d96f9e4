//! The process that a lab starts: the right writer, by its words.
//!
//! *Owns*: that choice. *May not touch*: the writing.

use std::io::{BufReader, Read, Write};
use std::path::Path;

use crate::in_use::{usage, worker};

/// Runs the writer of these words in `directory`.
pub fn write(
    words: &str,
    directory: &Path,
    input: impl Read + Send + 'static,
    output: &mut (dyn Write + Send),
) -> Result<(), String> {
    let input = BufReader::new(input);
    if words.starts_with(usage::HEAD) {
        return worker::work(directory, &words.parse()?, input, output);
    }
    Err(format!("{words:?} is not what a writer does"))
}
