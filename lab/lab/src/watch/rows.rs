//! The rows of a report: a file that was there all the time has its own, files that come and go
//! share one with those of the same kind.
//!
//! *Owns*: which files are one row, and its name. *May not touch*: how files were found.
//!
//! A file that was opened, created or removed while it was watched is one of many of its kind: a
//! rollback journal, a message, a segment. Its kind is its directory and its name without digits.

use std::collections::BTreeMap;

use super::recording::SeenFile;
use super::syncs::{Sync, Syncs};
use super::tally::{FileTally, Tallied};

/// One row.
pub(super) struct Row<'a> {
    /// Its files, as places in the files of `Syncs`: at least one.
    pub(super) files: Vec<usize>,
    /// The path of its file, or the pattern of its files' paths.
    pub(super) path: String,
    /// Their syncs.
    pub(super) syncs: Vec<&'a Sync>,
    /// Their bill.
    pub(super) tally: FileTally,
}

/// The rows of these files with their syncs.
pub(super) fn rows<'a>(
    by_file: &BTreeMap<usize, Vec<&'a Sync>>,
    syncs: &Syncs,
    tallied: &Tallied,
) -> Vec<Row<'a>> {
    let mut rows: BTreeMap<(Option<usize>, Result<usize, String>), Row<'a>> = BTreeMap::new();
    for (&index, of_it) in by_file {
        let file = &syncs.files[index];
        let path = file.path.display().to_string();
        let kind = if comes_and_goes(file) { Err(pattern(&path)) } else { Ok(index) };
        let (syncs, tally) = (Vec::new(), FileTally::default());
        let new = Row { files: Vec::new(), path: path.clone(), syncs, tally };
        let row = rows.entry((file.place, kind.clone())).or_insert(new);
        if let (Err(pattern), true) = (kind, row.path != path) {
            row.path = pattern;
        }
        row.files.push(index);
        row.syncs.extend(of_it);
        row.tally.add(tallied.files[index].clone());
    }
    let mut rows: Vec<Row<'a>> = rows.into_values().collect();
    rows.iter_mut().for_each(|row| row.tally.share());
    rows
}

fn comes_and_goes(file: &SeenFile) -> bool {
    !file.is_directory && (file.is_new || file.is_gone || file.births > 1)
}

/// The path with a `*` for each run of digits in the name, and for hexadecimal digits beside them.
fn pattern(path: &str) -> String {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut kind = String::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let run = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        let is_number = rest[..run].contains(|c: char| c.is_ascii_digit());
        let len = if is_number { run } else { run.max(first.len_utf8()) };
        kind.push_str(if is_number { "*" } else { &rest[..len] });
        rest = &rest[len..];
    }
    if path.contains('/') { format!("{directory}/{kind}") } else { kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_a_directory_and_a_name_without_digits() {
        for (path, kind) in [
            ("/pg/pg_wal/000000010000000A00000007", "/pg/pg_wal/*"),
            ("/db/app.db-journal", "/db/app.db-journal"),
            ("/mail/tmp/1732.M12P77.host", "/mail/tmp/*.M*P*.host"),
            ("/db/000012.log", "/db/*.log"),
            ("a file without a name here (inode 71)", "a file without a name here (inode *)"),
            ("/d1/face", "/d1/face"),
        ] {
            assert_eq!(pattern(path), kind);
        }
    }
}
