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
        check(path).with_context(named)?;
        let text = format!("{}\n", std::process::id());
        let mut new = path.to_path_buf().into_os_string();
        new.push(format!(".{}.new", std::process::id()));
        let new = PathBuf::from(new);
        let mut file = fs::File::create_new(&new).with_context(named)?;
        if let Err(error) = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&new, path)) {
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

/// Refuses a pid file that is the log, which is open.
fn check_is_not(log: &Path, path: &Path) -> anyhow::Result<()> {
    let number = |path: &Path| fs::metadata(path).map(|facts| (facts.dev(), facts.ino())).ok();
    let is_same = number(path).is_some_and(|it| number(log) == Some(it));
    let why = || format!("the pid file {} is the log itself: name another file", path.display());
    anyhow::ensure!(!is_same, WrongValue(why()));
    Ok(())
}

/// Refuses to replace a file that does not hold a number. It may be empty after a power loss.
fn check(path: &Path) -> anyhow::Result<()> {
    let facts = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        facts => facts?,
    };
    anyhow::ensure!(facts.is_file(), "it is not a regular file");
    let mut text = Vec::new();
    fs::File::open(path)?.take(BYTES_MAX).read_to_end(&mut text)?;
    let is_number = text.len() < 32 && text.trim_ascii().iter().all(u8::is_ascii_digit);
    anyhow::ensure!(
        is_number,
        "it holds something else than a process number; remove it, or name another file"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_the_number_goes_with_it_and_replaces_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        let (path, log) = (at.join("pid"), at.join("log"));
        for left in ["12345\n", ""] {
            fs::write(&path, left).expect("written");
            let file = PidFile::write(&path, &log).expect("written");
            let own = format!("{}\n", std::process::id());
            assert_eq!(fs::read_to_string(&path).expect("text"), own);
            drop(file);
            assert!(!path.exists());
        }
        let file = PidFile::write(&path, &log).expect("written");
        fs::write(&path, "7\n").expect("another has taken it over");
        drop(file);
        assert!(path.exists(), "it is the other's now");
        for text in ["a line\n", "12 13\n", &"1".repeat(40)] {
            fs::write(&path, text).expect("written");
            let error = format!("{:#}", PidFile::write(&path, &log).expect_err("refused"));
            assert!(error.contains("pid") && error.contains("something else"), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("text"), text);
        }
        let link = at.join("link");
        std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
        assert!(PidFile::write(&link, &log).is_err() && PidFile::write(at, &log).is_err());
    }
}
