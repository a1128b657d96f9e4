//! The stage files that this process has.
//!
//! *Owns*: the list, one for each process. *May not touch*: the files.
//!
//! A child of `fork` has a copy of its parent's list, with its lock in the state at the fork: perhaps held forever by a thread
//! that does not exist in the child. The entries are not those of the child either. So each process makes its own list when it
//! needs one, and leaves that of its parent alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::fork::ForkMark;

struct List {
    mark: ForkMark,
    paths: Mutex<BTreeSet<PathBuf>>,
}

/// The last list that was made. A list is never freed: a child may be checking whose it is.
static LIST: AtomicPtr<List> = AtomicPtr::new(null_mut());

fn list() -> Result<MutexGuard<'static, BTreeSet<PathBuf>>> {
    loop {
        let last = LIST.load(Ordering::Acquire);
        // SAFETY: null, or a list that was leaked when it was put there.
        if let Some(list) = unsafe { last.as_ref() }.filter(|list| !list.mark.is_child()) {
            return Ok(list.paths.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let made = Box::into_raw(Box::new(List { mark: ForkMark::new()?, paths: Mutex::default() }));
        if LIST.compare_exchange(last, made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: made above, and not stored where other threads could see it.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

/// Enters the stage into this process's list; false if it is there already.
pub(crate) fn take(path: &Path) -> Result<bool> {
    Ok(list()?.insert(path.to_path_buf()))
}

/// Removes the stage from this process's list.
pub(crate) fn give_back(path: &Path) {
    if let Ok(mut list) = list() {
        list.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_host::in_forked_child;

    /// As it is when another thread is just opening a stage.
    #[test]
    fn a_child_that_was_forked_while_the_list_was_locked_waits_for_nobody() {
        let path = Path::new("of the parent's");
        assert!(take(path).expect("a list"));
        let locked = list().expect("a list");
        let code = in_forked_child(|| {
            let is_taken = take(path).expect("a list of its own");
            let is_noted = !take(path).expect("a list of its own");
            u8::from(is_taken && is_noted)
        });
        drop(locked);
        give_back(path);
        assert_eq!(code.expect("a child that does not hang"), 1);
    }
}
