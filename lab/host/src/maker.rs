//! Names of things that may outlive the process that made them: `<prefix><process>-<number>`.
//!
//! *Owns*: the names, and whether their maker still lives. *May not touch*: the things, and
//! processes.

use std::ffi::OsStr;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

/// A name that this process has not given yet.
pub(super) fn next_name(prefix: &str) -> String {
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    let number = GIVEN.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}{}-{number}", std::process::id())
}

/// The process that made a thing of this name; `None` if it is no name of ours.
pub(super) fn maker(name: &OsStr, prefix: &str) -> Option<u32> {
    let (process, number) = name.to_str()?.strip_prefix(prefix)?.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(process) && is_number(number)).then(|| process.parse().ok())?
}

/// Whether this pid namespace has a process of this number: the maker, or a later one. Without
/// /proc none counts as dead.
pub(super) fn may_live(process: u32) -> bool {
    fs::exists(format!("/proc/{process}")).unwrap_or(true)
        || !fs::exists("/proc/self").unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_have_a_maker() {
        let of = |name: &str| maker(OsStr::new(name), ".inkstone-lab-");
        assert_eq!(of(&next_name(".inkstone-lab-")), Some(std::process::id()));
        assert_ne!(next_name("a"), next_name("a"));
        assert_eq!(of(".inkstone-lab-12-3"), Some(12));
        for wrong in [
            "inkstone-lab-1-2",
            ".inkstone-lab-1",
            ".inkstone-lab-1-",
            ".inkstone-lab-1-2x",
            ".inkstone-lab--2",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        assert!(may_live(child.id()));
        child.kill().and_then(|()| child.wait()).expect("our child");
        assert!(!may_live(child.id()));
    }
}
