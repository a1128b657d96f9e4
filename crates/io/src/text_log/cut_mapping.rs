//! What is said when another program cuts a file in memory that is mapped here: whoever touches the
//! bytes that are gone gets a SIGBUS.
//!
//! *Owns*: the handler of that signal, the words for each mapped file. *May not touch*: the
//! mappings.
//!
//! The bytes are lost, and no code could go on as if they were there. So the handler writes to
//! stderr which file was cut, and the signal ends the process as it does without a handler. A
//! signal for another reason goes to the handler that was there before.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// How long a stderr that is full is waited for.
const STDERR_MS: c_int = 100;

/// A mapped file. It stays in the list for as long as the process lives, since the handler may be
/// reading it; the next mapping of the same file uses it again.
struct Mapped {
    /// 0 while nothing is mapped.
    start: AtomicUsize,
    end: AtomicUsize,
    words: String,
    next: *const Mapped,
}

static NEWEST: AtomicPtr<Mapped> = AtomicPtr::new(null_mut());
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// Held by who adds to the list.
static ADDING: Mutex<()> = Mutex::new(());

fn all() -> impl Iterator<Item = &'static Mapped> {
    let of = |mapped: *const Mapped| {
        // SAFETY: null, or leaked by `watch` before it came into the list: it is there for ever.
        unsafe { mapped.as_ref() }
    };
    std::iter::successors(of(NEWEST.load(Ordering::Acquire)), move |mapped| of(mapped.next))
}

/// Watches a mapping until it is dropped.
pub(crate) struct Watched(&'static Mapped);

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.words)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Release);
    }
}

/// Has the cause said if the file of this mapping is cut.
pub(crate) fn watch(path: &Path, start: usize, len: usize) -> Watched {
    let _adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
    let words = format!(
        "inkstone: another program cut {} while lines were in it: those that are not in the log \
         are lost, and this process ends (SIGBUS); remove such a file instead, and another is \
         made\n",
        path.display()
    );
    let is_free =
        |mapped: &&Mapped| mapped.start.load(Ordering::Acquire) == 0 && mapped.words == words;
    let mapped = all().find(is_free).unwrap_or_else(|| {
        let (unused, next) = (AtomicUsize::new(0), NEWEST.load(Ordering::Acquire));
        let mapped = Box::new(Mapped { start: unused, end: AtomicUsize::new(0), words, next });
        let mapped = Box::into_raw(mapped);
        NEWEST.store(mapped, Ordering::Release);
        // SAFETY: it was just leaked.
        unsafe { &*mapped }
    });
    mapped.end.store(start + len, Ordering::Release);
    mapped.start.store(start, Ordering::Release);
    install();
    Watched(mapped)
}

/// Installs the handler, once.
fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: zeros are a valid action, and both live through the call. The handler does only
        // what a handler may.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            let mut own = before;
            own.sa_sigaction = on_bus as *const () as usize;
            own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const own, &raw mut before);
            before
        }
    });
}

/// The handler: it takes no lock and allocates nothing.
extern "C" fn on_bus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the facts of the signal.
    let (is_access, at) = unsafe { ((*info).si_code > 0, (*info).si_addr().addr()) };
    let is_in = |mapped: &&Mapped| {
        let start = mapped.start.load(Ordering::Acquire);
        start != 0 && (start..mapped.end.load(Ordering::Acquire)).contains(&at)
    };
    if let Some(mapped) = all().find(is_in).filter(|_| is_access) {
        let mut stderr = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
        // SAFETY: the set and the words live through the calls. The access is tried again when
        // this returns, and the default action ends the process.
        unsafe {
            if libc::poll(&raw mut stderr, 1, STDERR_MS) == 1 {
                libc::write(2, mapped.words.as_ptr().cast(), mapped.words.len());
            }
            libc::signal(signal, libc::SIG_DFL);
        }
        return;
    }
    let (handler, flags) =
        BEFORE.get().map_or((libc::SIG_DFL, 0), |before| (before.sa_sigaction, before.sa_flags));
    // SAFETY: what was installed as a handler is one, of the kind that its flags say.
    unsafe {
        if handler == libc::SIG_IGN && !is_access {
        } else if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        } else if flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal);
        }
    }
}
