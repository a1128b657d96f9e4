//! A file for data, as `--json FILE` names it: `-` is stdout.
//!
//! *Owns*: opening it before the work, and filling it. *May not touch*: what is written.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::stdout;

/// The destination of data.
#[derive(Debug)]
pub(crate) enum Export {
    /// In place of the text for people.
    Stdout,
    File {
        path: PathBuf,
        file: File,
    },
}

impl Export {
    /// Opens it: that it cannot be written is better found before hours of work than after them.
    /// The file keeps its old content until there is something to write.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        if is_stdout(path) {
            return Ok(Self::Stdout);
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("open {} to write", path.display()))?;
        Ok(Self::File { path: path.to_path_buf(), file })
    }

    /// Writes the text in place of what the file holds.
    pub(crate) fn write(&mut self, text: &str) -> anyhow::Result<()> {
        match self {
            Self::Stdout => stdout::print(text),
            Self::File { path, file } => {
                fill(file, text).with_context(|| format!("write {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// This name of a file stands for stdout.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// A pipe or a device has no length.
fn fill(file: &mut File, text: &str) -> std::io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
        file.rewind()?;
    }
    file.write_all(text.as_bytes())
}
