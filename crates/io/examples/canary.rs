//! Mistakes that ThreadSanitizer and Miri must report: the canary of `.ci/sanitize`. A tool that
//! misses one finds nothing.
//!
//! *Owns*: one deliberate mistake for each word. *May not touch*: the crate; nothing here is part
//! of it, and no test runs it.
//!
//! `sound` is the control: the same threads without the mistake, about which no tool may complain.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// One byte that one thread writes and then publishes, and another reads.
struct Mail {
    byte: std::cell::UnsafeCell<u8>,
    there: AtomicBool,
}

// SAFETY: sound only if `there` is published with `Release` and seen with `Acquire`; `race` breaks
// that on purpose.
unsafe impl Sync for Mail {}

impl Mail {
    fn put(&self, byte: u8, publish: Ordering) {
        // SAFETY: no thread reads the byte before `there` is true.
        unsafe { *self.byte.get() = byte };
        self.there.store(true, publish);
    }

    fn take(&self, look: Ordering) -> u8 {
        while !self.there.load(look) {
            std::thread::yield_now();
        }
        // SAFETY: written before `there` became true, if the orders given say so.
        unsafe { *self.byte.get() }
    }
}

/// Hands one byte from a thread to this one.
fn hand_over(publish: Ordering, look: Ordering) -> u8 {
    let mail = Mail { byte: 0.into(), there: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        scope.spawn(|| mail.put(7, publish));
        mail.take(look)
    })
}

/// Reads one byte of an allocation of 64, at `at`, after freeing it where `freed`.
fn read_one(at: usize, freed: bool) -> u8 {
    let layout = Layout::new::<[u8; 64]>();
    // SAFETY: the layout has a size above 0.
    let start = unsafe { alloc_zeroed(layout) };
    assert!(!start.is_null(), "64 bytes of memory");
    if freed {
        // SAFETY: allocated above with this layout.
        unsafe { dealloc(start, layout) };
    }
    // SAFETY: none, when `at` is 64 or the memory is freed: that is the mistake.
    let byte = unsafe { start.wrapping_add(at).read_volatile() };
    if !freed {
        // SAFETY: allocated above with this layout, and not freed yet.
        unsafe { dealloc(start, layout) };
    }
    byte
}

fn main() -> ExitCode {
    let byte = match std::env::args().nth(1).as_deref() {
        Some("sound") => hand_over(Ordering::Release, Ordering::Acquire) + read_one(63, false),
        Some("race") => hand_over(Ordering::Relaxed, Ordering::Relaxed),
        Some("behind-the-end") => read_one(64, false),
        Some("after-free") => read_one(0, true),
        _ => {
            eprintln!("usage: canary sound|race|behind-the-end|after-free");
            return ExitCode::from(2);
        }
    };
    println!("nothing was noticed, the byte is {byte}");
    ExitCode::SUCCESS
}
