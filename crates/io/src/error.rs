//! The error of this crate: what was attempted, on which path and offset, what the kernel answered,
//! what to do.
//!
//! It is `Clone`, because every waiter of a group gets the error of its sync.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The answers of a kernel or file system that lacks a call; the first and the last are one on
/// Linux.
const NO_SUCH_CALL: [i32; 3] = [libc::EOPNOTSUPP, libc::ENOSYS, libc::ENOTSUP];
/// What else says "not here": a flag that is not known, a sandbox (seccomp answers `EPERM` where it
/// was made so), a file system without locks.
const NOT_HERE: [i32; 3] = [libc::EINVAL, libc::EPERM, libc::ENOLCK];

/// Whether this answer may mean that the call, or one of its flags, is not to be had here: the
/// kernel, the file system or a sandbox lacks it. What has a substitute then takes it; a true
/// `EINVAL` or `EPERM` comes again from the substitute.
pub fn is_not_here(answer: &io::Error) -> bool {
    let code = answer.raw_os_error();
    code.is_some_and(|code| NO_SUCH_CALL.contains(&code) || NOT_HERE.contains(&code))
        || matches!(answer.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
}

/// The result of every call of this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation with its place and, if known, what to do about it.
#[derive(Debug, Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    operation: &'static str,
    path: PathBuf,
    offset: Option<u64>,
    advice: Option<String>,
    is_forked: bool,
    source: io::Error,
}

/// What to do when the system refuses a thread.
pub const MORE_THREADS: &str =
    "see `ulimit -u` and the container's limit of processes, `pids.max`, which count threads";

impl Error {
    /// An error of `operation` on `path`; the methods below add the offset and the advice.
    pub fn new(
        operation: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        let inner = Inner {
            operation,
            path: path.as_ref().to_path_buf(),
            offset: None,
            advice: None,
            is_forked: false,
            source: source.into(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The error of an argument that cannot work, found before any system call.
    pub fn invalid(
        operation: &'static str,
        path: impl AsRef<Path>,
        why: impl Into<String>,
    ) -> Self {
        Self::new(operation, path, io::Error::new(io::ErrorKind::InvalidInput, why.into()))
    }

    /// The error of a function that this kernel, file system or build does not have.
    pub fn unsupported(
        operation: &'static str,
        path: impl AsRef<Path>,
        why: impl Into<String>,
    ) -> Self {
        Self::new(operation, path, io::Error::new(io::ErrorKind::Unsupported, why.into()))
    }

    /// The error of a call that would change a file or directory, in a process that was forked
    /// after it was opened: it belongs to the parent process, and nothing was done.
    pub fn forked(operation: &'static str, path: impl AsRef<Path>) -> Self {
        let source = io::Error::other(
            "this process was forked after it was opened; it belongs to the parent process",
        );
        let error = Self::new(operation, path, source).advise("open it again in this process");
        error.change(|inner| inner.is_forked = true)
    }

    /// Adds the byte of the file at which it happened.
    #[must_use]
    pub fn at(self, offset: u64) -> Self {
        self.change(|inner| inner.offset = Some(offset))
    }

    /// Adds what the user can do about it: one sentence, no full stop.
    #[must_use]
    pub fn advise(self, advice: impl Into<String>) -> Self {
        self.change(|inner| inner.advice = Some(advice.into()))
    }

    fn change(self, change: impl FnOnce(&mut Inner)) -> Self {
        // Unshared in practice: an error gets its details before it is cloned.
        let mut inner = Arc::try_unwrap(self.inner).unwrap_or_else(|shared| Inner {
            operation: shared.operation,
            path: shared.path.clone(),
            offset: shared.offset,
            advice: shared.advice.clone(),
            is_forked: shared.is_forked,
            source: copy_of(&shared.source),
        });
        change(&mut inner);
        Self { inner: Arc::new(inner) }
    }

    /// What was attempted: the name of the system call, or a few words.
    pub fn operation(&self) -> &'static str {
        self.inner.operation
    }

    /// The file or directory it was attempted on.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The byte offset, where the operation has one.
    pub fn offset(&self) -> Option<u64> {
        self.inner.offset
    }

    /// The kind of the kernel's answer.
    pub fn kind(&self) -> io::ErrorKind {
        self.inner.source.kind()
    }

    /// The kernel's error number, if the error came from the kernel.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.inner.source.raw_os_error()
    }

    /// Whether the function is not available here (`EOPNOTSUPP`, `ENOSYS`, or missing in this
    /// build), rather than failed.
    pub fn is_unsupported(&self) -> bool {
        self.kind() == io::ErrorKind::Unsupported
            || self.raw_os_error().is_some_and(|code| NO_SUCH_CALL.contains(&code))
    }

    /// Whether the call may be missing here, so that its substitute is worth trying
    /// ([`is_not_here`]).
    pub fn is_not_here(&self) -> bool {
        is_not_here(&self.inner.source)
    }

    /// Whether locks are not to be had here, to take or to ask for: the file system has none, or a
    /// sandbox or a security module (AppArmor, SELinux; `EACCES`) lets this process have none. No
    /// other holder is meant.
    pub fn is_without_locks(&self) -> bool {
        self.operation() == "lock"
            && (self.is_not_here() || self.raw_os_error() == Some(libc::EACCES))
    }

    /// Whether there is no room: on the file system, or within a quota.
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether this process (`EMFILE`), or the whole system (`ENFILE`), had no descriptor left for
    /// another open file.
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
    }

    /// What to do, if there is something to say.
    pub fn advice(&self) -> Option<&str> {
        self.inner.advice.as_deref().or_else(|| cause_of(&self.inner.source))
    }

    /// What happened, without what to do: for an error around it that gives its own advice.
    pub fn without_advice(&self) -> impl fmt::Display {
        WithoutAdvice(self)
    }

    /// Whether the call was refused because this process was forked after the file or directory was
    /// opened ([`Error::forked`]).
    pub fn is_forked(&self) -> bool {
        self.inner.is_forked
    }
}

/// What to do about an answer that says more of the place than of the call.
fn cause_of(answer: &io::Error) -> Option<&'static str> {
    match answer.raw_os_error()? {
        libc::ENOSYS => Some(
            "this kernel or a sandbox (seccomp) lacks the call, and it is needed: allow it there",
        ),
        libc::EPERM => Some(
            "a sandbox (seccomp, a container's profile) or an attribute of the file (lsattr) \
             forbids it, and it is needed: allow it there",
        ),
        libc::EOPNOTSUPP | libc::EINVAL => Some(
            "this file system or a sandbox lacks the call, and it is needed: choose another \
             directory, or allow it",
        ),
        libc::EMFILE => Some("raise this process's limit on open files (`ulimit -n`)"),
        libc::ENFILE => Some("raise the system's limit on open files (`sysctl fs.file-max`)"),
        libc::EROFS => Some(
            "the file system takes no writes: `dmesg` says why; reading and `inkstone copy` work",
        ),
        _ => None,
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// The first half of an error's text.
struct WithoutAdvice<'a>(&'a Error);

impl fmt::Display for WithoutAdvice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0.inner;
        write!(f, "{} {}", inner.operation, inner.path.display())?;
        if let Some(offset) = inner.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", inner.source)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.without_advice().fmt(f)?;
        match self.advice() {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

/// Without a `source`: the text has the cause, so a program that prints the causes too prints it
/// once. [`Error::kind`] and [`Error::raw_os_error`] have it for programs.
impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_where_and_what_to_do() {
        let error = Error::new("pwrite", "/log/7", io::Error::from_raw_os_error(libc::ENOSPC))
            .at(4096)
            .advise("free some space");
        let text = error.to_string();
        assert!(text.starts_with("pwrite /log/7 at byte 4096: No space left"), "{text}");
        assert!(text.ends_with("; free some space"), "{text}");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(format!("{}; free some space", error.without_advice()), text);
        assert!(std::error::Error::source(&error).is_none(), "its text is in the error's own");
    }

    #[test]
    fn a_forked_childs_error_stays_one() {
        let error = Error::forked("pwrite", "/log/7");
        let copy = error.clone().at(8);
        assert!(error.is_forked() && copy.is_forked());
        assert!(!Error::invalid("pwrite", "/log/7", "x").is_forked());
        let text = copy.to_string();
        assert!(text.starts_with("pwrite /log/7 at byte 8: this process was forked"), "{text}");
    }
}
