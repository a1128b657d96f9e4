//! The file that says which process to send a SIGHUP to.
//!
//! *Owns*: that file, from its writing to its removal. *May not touch*: any file that holds something else.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// More than any number has.
const BYTES_MAX: u64 = 32;

/// Removed when it is dropped, if it still says what was written.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    text: String,
}

impl PidFile {
    /// Writes this process's number. It takes the place of a number that a killed process has left, whole at every moment.
    pub(super) fn write(path: &Path) -> anyhow::Result<Self> {
        let named = || format!("write the pid file {}", path.display());
        check(path).with_context(named)?;
        let text = format!("{}\n", std::process::id());
        let mut new = path.to_path_buf().into_os_string();
        new.push(format!(".{}.new", std::process::id()));
        let put = || -> std::io::Result<()> {
            let mut file = fs::File::create_new(&new)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&new, path)
        };
        if let Err(error) = put() {
            // One that was there before is not ours.
            if error.kind() != ErrorKind::AlreadyExists {
                let _ = fs::remove_file(&new);
            }
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

/// Refuses to replace what is no number.
fn check(path: &Path) -> anyhow::Result<()> {
    let facts = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        facts => facts?,
    };
    anyhow::ensure!(facts.is_file(), "there is something of that name that is no plain file");
    let mut text = Vec::new();
    fs::File::open(path)?.take(BYTES_MAX).read_to_end(&mut text)?;
    let is_number = text.len() < 32 && text.trim_ascii().iter().all(u8::is_ascii_digit);
    anyhow::ensure!(
        is_number,
        "it holds something else than the number of a process; remove it, or name another"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_the_number_and_goes_with_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pid");
        for before in ["", "12345\n"] {
            fs::write(&path, before).expect("written");
            let file = PidFile::write(&path).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("text"), format!("{}\n", std::process::id()));
            drop(file);
            assert!(!path.exists());
        }
        let file = PidFile::write(&path).expect("written");
        fs::write(&path, "7\n").expect("another has taken it over");
        drop(file);
        assert!(path.exists(), "it is the other's now");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn nothing_else_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("service.log");
        for text in ["a line\n", "12 13\n", &"1".repeat(40)] {
            fs::write(&path, text).expect("written");
            let error = format!("{:#}", PidFile::write(&path).expect_err("refused"));
            assert!(error.contains("service.log") && error.contains("something else"), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("text"), text);
        }
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
        assert!(PidFile::write(&link).is_err() && PidFile::write(directory.path()).is_err());
        let missing = PidFile::write(&directory.path().join("missing/pid"));
        assert!(format!("{:#}", missing.expect_err("refused")).contains("missing/pid"));
    }
}
