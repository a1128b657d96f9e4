//! Detects, without a system call, whether this process was forked since something was opened.
//!
//! *Owns*: one page for the process, which the kernel wipes in a child (Linux: `MADV_WIPEONFORK`),
//! and the handlers that the C library calls around `fork`. *May not touch*: what a child does
//! then; locks have their own table (`lock_table.rs`).
//!
//! A child of `fork` has one thread, and every lock in the state at the fork: it must not take a
//! lock that another thread of the parent may have held. The process id would tell a child from its
//! parent too, but asking for it costs a system call.
//!
//! The page holds the number of this process among its ancestors: a process takes the next number
//! when it first opens something, and what it opens remembers the number. So a child can open
//! things of its own, and *its* child detects a fork for them again.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::error::{Error, Result};
use crate::lock_table;
use crate::sys;

/// The page, once there is one; never unmapped.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// The last number that this process or an ancestor took: a child continues from that of its
/// parent.
static LAST: AtomicU64 = AtomicU64::new(0);
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

/// Remembers the process that made it. Copies are the same mark.
#[derive(Debug, Clone, Copy)]
pub struct ForkMark {
    word: &'static AtomicU64,
    number: u64,
}

impl ForkMark {
    /// A mark of this process.
    ///
    /// # Errors
    /// There is no memory for one page, or for the handlers of `fork`.
    pub fn new() -> Result<Self> {
        let failed =
            |source: io::Error| Error::new("make a mark for forks in", Path::new("memory"), source);
        install_handlers().map_err(failed)?;
        let word = page().map_err(failed)?;
        let mut number = word.load(Ordering::Relaxed);
        if number == 0 {
            let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            let taken = word.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
            number = taken.map_or_else(|others| others, |_| next);
        }
        Ok(Self { word, number })
    }

    /// Whether this process was forked from the one that made the mark, however many forks ago. One
    /// load.
    #[inline]
    pub fn is_child(&self) -> bool {
        self.word.load(Ordering::Relaxed) != self.number
    }
}

/// Something that a forked child leaves as it is: it is not dropped there, since its drop would use
/// what is the parent's (a ring), or wait for what the child does not have (threads).
#[derive(Debug)]
pub struct LeftInChild<T> {
    mark: ForkMark,
    inner: ManuallyDrop<T>,
}

impl<T> LeftInChild<T> {
    /// This process drops it, its children do not.
    ///
    /// # Errors
    /// As [`ForkMark::new`].
    pub fn new(inner: T) -> Result<Self> {
        Ok(Self { mark: ForkMark::new()?, inner: ManuallyDrop::new(inner) })
    }

    /// Whether this process is such a child.
    #[inline]
    pub fn is_child(&self) -> bool {
        self.mark.is_child()
    }
}

impl<T> Deref for LeftInChild<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for LeftInChild<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for LeftInChild<T> {
    fn drop(&mut self) {
        if !self.is_child() {
            // SAFETY: this is the only place that drops it, and no code uses it after that.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

/// The page of the process. Without a lock: a child that was forked while another thread held it
/// would wait forever.
fn page() -> io::Result<&'static AtomicU64> {
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let made = new_page()?.as_ptr();
        page = match PAGE.compare_exchange(page, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(others) => {
                // SAFETY: mapped by `new_page` with this length, and no other code knows it.
                let _ = unsafe { munmap(made.cast(), rustix::param::page_size()) };
                others
            }
        };
    }
    // SAFETY: a page that `PAGE` has named stays mapped for as long as the process lives, and is
    // only used as this atomic.
    Ok(unsafe { &*page })
}

fn new_page() -> io::Result<NonNull<AtomicU64>> {
    let bytes = rustix::param::page_size();
    // SAFETY: a fresh anonymous mapping at an address that the kernel chooses touches no memory of
    // ours.
    let page = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    // SAFETY: the page is the whole mapping made above, no other code knows it, and 0 is a value of
    // the atomic.
    unsafe { sys::wipe_in_children(page.cast(), bytes) };
    NonNull::new(page.cast()).ok_or_else(|| io::Error::other("mmap gave address 0"))
}

/// Asks the C library to call the handlers below around each `fork`. Two threads at the same time
/// install them twice, which is harmless: each pair is called together or not at all.
fn install_handlers() -> io::Result<()> {
    if HAS_HANDLERS.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: the three functions live as long as the program, take nothing, and only use atomics
    // and system calls.
    match unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) } {
        0 => HAS_HANDLERS.store(true, Ordering::Release),
        code => return Err(io::Error::from_raw_os_error(code)),
    }
    Ok(())
}

unsafe extern "C" fn before_fork() {
    lock_table::before_fork();
}

unsafe extern "C" fn after_fork() {
    lock_table::after_fork();
}

unsafe extern "C" fn in_child() {
    let page = PAGE.load(Ordering::Acquire);
    if !page.is_null() {
        // SAFETY: as in `page`.
        unsafe { &*page }.store(0, Ordering::Relaxed);
    }
    lock_table::let_go_in_child();
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_host::in_forked_child;

    #[test]
    fn a_child_knows_itself_and_the_parent_stays_who_it_was() {
        let mark = ForkMark::new().expect("a mark");
        assert!(!mark.is_child());
        let child = in_forked_child(|| u8::from(mark.is_child()));
        assert_eq!(child.expect("a child"), 1);
        assert!(!mark.is_child());
    }

    #[test]
    fn a_childs_own_mark_is_its_own_and_strange_to_its_child() {
        let mine = ForkMark::new().expect("a mark");
        let child = in_forked_child(|| {
            // A second fork before the first one took a number of its own, and one after it.
            let strange = in_forked_child(|| u8::from(mine.is_child())).expect("a grandchild");
            let own = ForkMark::new().expect("a mark");
            let is_own = !own.is_child() && mine.is_child();
            let both = in_forked_child(|| u8::from(own.is_child() && mine.is_child()))
                .expect("a grandchild");
            u8::from(is_own) + 2 * strange + 4 * both
        });
        assert_eq!(child.expect("a child"), 7);
        assert!(!mine.is_child() && !ForkMark::new().expect("a mark").is_child());
    }
}
