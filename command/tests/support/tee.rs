//! Starting `inkstone tee` for its tests, and reading its files.
//!
//! *Owns*: the files of a text log. *May not touch*: what must be in them.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::support::{in_bash, inkstone, said};

/// A directory, and the path of a log in it.
pub(crate) fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.log");
    (directory, file)
}

pub(crate) fn tee(file: &Path, arguments: &[&str]) -> Command {
    let mut command = inkstone();
    command.arg("tee").arg(file).args(arguments);
    command
}

/// The same, with files of at most 100 KiB: a disk that is full then. The limit can be raised.
pub(crate) fn limited_tee(file: &Path, arguments: &[&str]) -> Command {
    let mut command = in_bash("trap '' XFSZ; ulimit -S -f 100");
    command.arg("tee").arg(file).args(arguments);
    command
}

pub(crate) fn start(file: &Path, arguments: &[&str]) -> Child {
    tee(file, arguments).spawn().expect("inkstone")
}

/// Writes lines to it.
pub(crate) fn put(tee: &mut Child, bytes: impl AsRef<[u8]>) {
    tee.stdin.as_mut().expect("a pipe").write_all(bytes.as_ref()).expect("it reads");
}

/// The content of a file; empty while there is none.
pub(crate) fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

pub(crate) fn len(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |facts| facts.len())
}

/// The texts of a log's files, compressed or not, oldest first; the last is the log's own. A link
/// to it does not count.
pub(crate) fn all_text(file: &Path) -> Vec<String> {
    let folder = file.parent().expect("a directory");
    let entries = std::fs::read_dir(folder).expect("listed").flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| !path.is_symlink());
    let mut files: Vec<PathBuf> = files.collect();
    // As text the tenth of a second would come before the second.
    files.sort_by_key(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        let mut parts = name.split('.').skip(2).map(str::to_owned);
        let stamp = parts.next().unwrap_or("~".to_owned());
        (stamp, parts.next().and_then(|number| number.parse::<u32>().ok()))
    });
    let read = |path: &PathBuf| {
        if path.extension().is_none_or(|extension| extension != "gz") {
            return std::fs::read_to_string(path).expect("text");
        }
        // The compressed form counts only once its plain one is gone.
        if path.with_extension("").exists() {
            return String::new();
        }
        let output = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip");
        assert!(output.status.success(), "{}: {}", path.display(), said(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    files.iter().map(read).collect()
}
