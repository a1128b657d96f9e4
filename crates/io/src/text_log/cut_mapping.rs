//! What is said when another program cuts a file in memory that is mapped here: whoever touches the
//! bytes that are gone gets a SIGBUS.
//!
//! *Owns*: the handler of that signal, the words for each mapped file. *May not touch*: the
//! mappings.
//!
//! The bytes are lost, and no code could go on as if they were there. So the handler writes to
//! stderr which file was cut, and the signal ends the process as it does without a handler. A
//! signal for another reason goes to the handler that was there before. So does that of a forked
//! child: it has no mapping, and may have something of its own in that place.
//!
//! There is no lock here: a child may watch mappings of its own, whatever another thread of its
//! parent did at the fork.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// How long a stderr that is full is waited for.
const STDERR_MS: c_int = 100;

/// A mapped file. It stays in the list for as long as the process lives, since the handler may be
/// reading it; the next mapping of the same file uses it again.
struct Mapped {
    is_in_use: AtomicBool,
    /// 0 while nothing is mapped.
    start: AtomicUsize,
    end: AtomicUsize,
    /// The number of the process that has mapped it.
    process: AtomicU32,
    words: String,
    next: *const Mapped,
}

static NEWEST: AtomicPtr<Mapped> = AtomicPtr::new(null_mut());
/// What was to be done before; null until the handler is about to be installed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());

fn all() -> impl Iterator<Item = &'static Mapped> {
    let of = |mapped: *const Mapped| {
        // SAFETY: null, or leaked by `add` before it came into the list: it is there for ever.
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
        self.0.is_in_use.store(false, Ordering::Release);
    }
}

/// Has the cause said if the file of this mapping is cut.
pub(crate) fn watch(path: &Path, start: usize, len: usize) -> Watched {
    let words = format!(
        "inkstone: another program cut {} while lines were in it: those that are not in the log \
         are lost, and this process ends (SIGBUS); remove such a file instead, and another is \
         made\n",
        path.display()
    );
    let is_free =
        |mapped: &&Mapped| mapped.words == words && !mapped.is_in_use.swap(true, Ordering::AcqRel);
    let mapped = all().find(is_free).unwrap_or_else(|| add(words.clone()));
    mapped.process.store(std::process::id(), Ordering::Release);
    mapped.end.store(start + len, Ordering::Release);
    mapped.start.store(start, Ordering::Release);
    install();
    Watched(mapped)
}

/// Adds one to the list, in use.
fn add(words: String) -> &'static Mapped {
    let mapped = Box::into_raw(Box::new(Mapped {
        is_in_use: AtomicBool::new(true),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        process: AtomicU32::new(0),
        words,
        next: std::ptr::null(),
    }));
    let mut newest = NEWEST.load(Ordering::Acquire);
    loop {
        // SAFETY: it was just leaked, and nobody else knows it yet.
        unsafe { (*mapped).next = newest };
        match NEWEST.compare_exchange(newest, mapped, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: nobody changes it any more, but for its atomics.
            Ok(_) => return unsafe { &*mapped },
            Err(others) => newest = others,
        }
    }
}

/// Installs the handler, once.
fn install() {
    if !BEFORE.load(Ordering::Acquire).is_null() {
        return;
    }
    // SAFETY: zeros are a valid action, and both live through the calls. The handler does only what
    // a handler may.
    unsafe {
        let mut own: libc::sigaction = std::mem::zeroed();
        let before = Box::leak(Box::new(own));
        libc::sigaction(libc::SIGBUS, std::ptr::null(), before);
        // Known before the handler can run. Of two threads one installs it.
        let known =
            BEFORE.compare_exchange(null_mut(), before, Ordering::AcqRel, Ordering::Acquire);
        if known.is_ok() {
            own.sa_sigaction = on_bus as *const () as usize;
            own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const own, null_mut());
        }
    }
}

/// What this process has mapped there, and watches.
fn watched_at(at: usize) -> Option<&'static Mapped> {
    let process = std::process::id();
    all().find(|mapped| {
        let start = mapped.start.load(Ordering::Acquire);
        start != 0
            && (start..mapped.end.load(Ordering::Acquire)).contains(&at)
            && mapped.process.load(Ordering::Acquire) == process
    })
}

/// The handler: it takes no lock and allocates nothing.
extern "C" fn on_bus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the facts of the signal.
    let (is_access, at) = unsafe { ((*info).si_code > 0, (*info).si_addr().addr()) };
    if let Some(mapped) = watched_at(at).filter(|_| is_access) {
        let mut stderr = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
        // SAFETY: the set and the words live through the calls. The access is tried again when
        // this returns, and the default action ends the process.
        unsafe {
            // A pipe that nobody reads any more is ready too: the write would raise a SIGPIPE.
            if libc::poll(&raw mut stderr, 1, STDERR_MS) == 1 && stderr.revents == libc::POLLOUT {
                libc::write(2, mapped.words.as_ptr().cast(), mapped.words.len());
            }
            libc::signal(signal, libc::SIG_DFL);
        }
        return;
    }
    // SAFETY: null, or leaked by `install`.
    let before = unsafe { BEFORE.load(Ordering::Acquire).as_ref() };
    let (handler, flags) =
        before.map_or((libc::SIG_DFL, 0), |before| (before.sa_sigaction, before.sa_flags));
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

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_host::in_forked_child;
    use std::os::fd::AsRawFd as _;

    // Places so low that nothing is mapped there. The list is the process's, and the tests run at
    // the same time: each has places of its own, with a page between them.
    const OF_A_PARENT: usize = 4096;
    const OF_ANOTHER_THREAD: usize = 3 * 4096;
    const OF_A_CHILD: usize = 5 * 4096;

    #[test]
    fn what_a_child_has_in_the_place_of_a_mapping_is_its_own() {
        let end = OF_A_PARENT + 4096;
        let watched = watch(Path::new("a file"), OF_A_PARENT, 4096);
        let is_watched = || watched_at(OF_A_PARENT).is_some() && watched_at(end - 1).is_some();
        assert!(is_watched());
        assert!(watched_at(OF_A_PARENT - 1).is_none() && watched_at(end).is_none());
        assert_eq!(in_forked_child(|| u8::from(is_watched())).expect("a child"), 0);
        drop(watched);
        assert!(watched_at(OF_A_PARENT).is_none());
    }

    #[test]
    fn the_end_is_that_of_a_cut_file_also_if_nobody_reads_what_is_said() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("so long");
        let ended = in_forked_child(|| {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            // SAFETY: the number of stderr is of this child alone, and the mapping's address is the
            // kernel's choice. Touching it raises the signal that this is about.
            unsafe {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                libc::dup2(writer.as_raw_fd(), 2);
                let (protection, fd) = (libc::PROT_WRITE, file.as_raw_fd());
                let start =
                    libc::mmap(null_mut(), 4096, protection, libc::MAP_SHARED, fd, 0).cast::<u8>();
                let _watched = watch(Path::new("a file"), start.addr(), 4096);
                let _ = file.set_len(0);
                start.write_volatile(1);
            }
            0
        });
        let ended = ended.expect_err("no child goes on").to_string();
        let signal = format!("signal {} ended it", libc::SIGBUS);
        assert!(ended.contains(&signal), "{ended}");
    }

    #[test]
    fn a_child_watches_what_it_maps_whatever_other_threads_did_at_the_fork() {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(watch(Path::new("the parent's"), OF_ANOTHER_THREAD, 4096));
                }
            });
            let children: Vec<_> = (0..200)
                .map(|_| {
                    in_forked_child(|| {
                        // SAFETY: no memory is passed; it ends a child that waits for a lock.
                        unsafe { libc::alarm(20) };
                        let _watched = watch(Path::new("a child's"), OF_A_CHILD, 4096);
                        u8::from(watched_at(OF_A_CHILD).is_some())
                    })
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            for child in children {
                assert_eq!(child.expect("a child"), 1);
            }
        });
    }
}
