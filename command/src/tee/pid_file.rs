//! The file with the number of the process to send a SIGHUP to.
//!
//! *Owns*: that file, from writing to removal. *May not touch*: any file that holds something else.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::parse::WrongValue;

/// Longer than any process number.
const BYTES_MAX: u64 = 32;

/// Removed on drop, if it still has the text that was written.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    text: String,
}

impl PidFile {
    /// Writes this process's number, atomically, over a number that a killed process has left.
    pub(super) fn write(path: &Path, log: &Path) -> anyhow::Result<Self> {
        let named = || format!("write the pid file {}", path.display());
        check_is_not(log, path)?;
        check(path, false).with_context(named)?;
        let text = format!("{}\n", std::process::id());
        let mut new = path.to_path_buf().into_os_string();
        new.push(format!(".{}.new", std::process::id()));
        let new = PathBuf::from(new);
        // Left by a process that was killed just here and had the same number.
        let leftover = || format!("{} is in the way", new.display());
        if check(&new, true).with_context(leftover).with_context(named)? {
            fs::remove_file(&new).with_context(leftover).with_context(named)?;
        }
        let mut file = fs::File::create_new(&new).with_context(named)?;
        // Synced, so that a power loss leaves no empty file: the next start would refuse to replace
        // it.
        let put = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        if let Err(error) = put.and_then(|()| fs::rename(&new, path)) {
            let _ = fs::remove_file(&new);
            return Err(error).with_context(named);
        }
        Ok(Self { path: path.to_path_buf(), text })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Refuses a pid file that is the log: compares inodes, or names if one of them is missing.
pub(super) fn check_is_not(log: &Path, path: &Path) -> anyhow::Result<()> {
    let same = match (fs::metadata(log), fs::metadata(path)) {
        (Ok(log), Ok(facts)) => (log.dev(), log.ino()) == (facts.dev(), facts.ino()),
        _ => resolved(log) == resolved(path),
    };
    let why = || format!("the pid file {} is the log itself: name another file", path.display());
    anyhow::ensure!(!same, WrongValue(why()));
    Ok(())
}

/// The path with links in its directory resolved, if the directory exists.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    match (path.parent().map(fs::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path,
    }
}

/// Refuses to replace a file that does not hold a number; returns whether there is a file.
fn check(path: &Path, may_be_empty: bool) -> anyhow::Result<bool> {
    let facts = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        facts => facts?,
    };
    anyhow::ensure!(facts.is_file(), "it is not a regular file");
    let mut text = Vec::new();
    fs::File::open(path)?.take(BYTES_MAX).read_to_end(&mut text)?;
    let number = text.trim_ascii();
    let is_number = text.len() < 32
        && (may_be_empty || !number.is_empty())
        && number.iter().all(u8::is_ascii_digit);
    anyhow::ensure!(
        is_number,
        "it holds something else than a process number; remove it, or name another file"
    );
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_the_number_and_goes_with_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, log) = (directory.path().join("pid"), directory.path().join("log"));
        let new = directory.path().join(format!("pid.{}.new", std::process::id()));
        let own = format!("{}\n", std::process::id());
        // Whatever one that was killed has left.
        for left in ["12345\n", "123", ""] {
            fs::write(&new, left).expect("written");
            if !left.is_empty() {
                fs::write(&path, left).expect("written");
            }
            let file = PidFile::write(&path, &log).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("text"), own);
            drop(file);
            assert!(!new.exists() && !path.exists());
        }
        let file = PidFile::write(&path, &log).expect("written");
        fs::write(&path, "7\n").expect("another has taken it over");
        drop(file);
        assert!(path.exists(), "it is the other's now");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
        // Anything else with the name of the new one stays.
        fs::write(&new, "notes\n").expect("written");
        let error = format!("{:#}", PidFile::write(&path, &log).expect_err("refused"));
        assert!(error.contains(".new is in the way"), "{error}");
        assert_eq!(fs::read_to_string(&new).expect("text"), "notes\n");
    }

    #[test]
    fn it_is_never_the_log() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        fs::create_dir(at.join("logs")).expect("made");
        std::os::unix::fs::symlink("logs", at.join("alias")).expect("a link");
        let (log, alias) = (at.join("logs/s.log"), at.join("alias/s.log"));
        // Whether they exist or not.
        for _ in 0..2 {
            for path in [&log, &alias, &at.join("logs/./s.log")] {
                let error = check_is_not(&log, path).expect_err("refused").to_string();
                assert!(error.contains("is the log itself"), "{error}");
            }
            check_is_not(&log, &at.join("s.log")).expect("another");
            fs::write(&log, "7\n").expect("written");
        }
        fs::hard_link(&log, at.join("hard")).expect("a link");
        std::os::unix::fs::symlink(&log, at.join("soft")).expect("a link");
        assert!(
            check_is_not(&log, &at.join("hard")).is_err()
                && check_is_not(&at.join("soft"), &log).is_err()
        );
        assert_eq!(fs::read_to_string(&log).expect("text"), "7\n");
    }

    #[test]
    fn nothing_else_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("service.log");
        let log = directory.path().join("log");
        for text in ["", "a line\n", "12 13\n", &"1".repeat(40)] {
            fs::write(&path, text).expect("written");
            let error = format!("{:#}", PidFile::write(&path, &log).expect_err("refused"));
            assert!(error.contains("service.log") && error.contains("something else"), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("text"), text);
        }
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
        assert!(
            PidFile::write(&link, &log).is_err() && PidFile::write(directory.path(), &log).is_err()
        );
        let missing = PidFile::write(&directory.path().join("missing/pid"), &log);
        assert!(format!("{:#}", missing.expect_err("refused")).contains("missing/pid"));
    }
}
