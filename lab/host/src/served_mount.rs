//! A FUSE mount whose server is this process: aborted when the process is killed.
//!
//! *Owns*: a child process that waits for a kill of this process, and the thread that made it. *May
//! not touch*: the mount while this process lives.
//!
//! The kernel closes the descriptors of a killed process after its last thread has ended. A thread
//! that waits for a disk which the process itself serves ends when the disk answers, and the disk
//! fails its requests when the descriptor of `/dev/fuse` is closed: each waits for the other,
//! forever. Every process that uses the loop device waits with them. A thread that waits for
//! nothing ends at once, and `PR_SET_PDEATHSIG` notifies its child. The last thread that ends
//! closes the process's descriptors before its own end is told, so this thread has a table of
//! descriptors of its own, an empty one.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use inkstone_io::transfer::retry;
use inkstone_io::{Error, Result};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// The signal that the kernel sends to the child when the thread that made it has ended.
const ENDED: libc::c_int = libc::SIGUSR1;

/// While this exists, a kill of this process aborts the mount. Dropping it leaves the mount alone.
#[derive(Debug)]
#[must_use = "without it a kill may leave this process in the kernel forever"]
pub struct ServedMount {
    /// Dropped, it ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServedMount {
    /// Watches over the mount at `target`. It forks a process with a copy of this one's memory:
    /// call it before there is much.
    ///
    /// # Errors
    /// The system cannot start another thread or process.
    pub fn watch(target: &Path) -> Result<Self> {
        let fail = |error| Error::new("watch over", target, error);
        let path = CString::new(target.as_os_str().as_bytes()).map_err(|e| fail(e.into()))?;
        let (stop, stopped) = channel();
        let (tell, told) = channel();
        let thread = thread::Builder::new()
            .name("inkstone-mount".into())
            .spawn(move || keep(&path, &tell, &stopped))
            .map_err(fail)?;
        let started = told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended")));
        started.map_err(fail)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ServedMount {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes the child and then waits: the kernel notifies the child of the end of this very thread.
fn keep(path: &CString, tell: &Sender<io::Result<()>>, stopped: &Receiver<()>) {
    let process = std::process::id().cast_signed();
    let unshare = libc::CLOSE_RANGE_UNSHARE as libc::c_int;
    // SAFETY: no memory is passed. The descriptors are closed in this thread's copy of the table,
    // and this function uses none. The child calls only what may be called after a fork of a
    // process with threads (system calls on memory that was there before), and leaves by `_exit`.
    let child = unsafe {
        match libc::close_range(0, libc::c_uint::MAX, unshare) {
            0 => {
                let thread = libc::gettid();
                match libc::fork() {
                    0 => wait_and_abort(path, process, thread),
                    child => child,
                }
            }
            failed => failed,
        }
    };
    let Some(child) = Pid::from_raw(child.max(0)) else {
        let _ = tell.send(Err(io::Error::last_os_error()));
        return;
    };
    let _ = tell.send(Ok(()));
    // No message ever comes; the sender's end wakes this thread.
    let _ = stopped.recv();
    let _ = kill_process(child, Signal::KILL);
    let _ = retry(|| Ok(waitpid(Some(child), WaitOptions::empty())?));
}

/// The child: it has no descriptor, as the thread that made it, and leaves its process group, whose
/// signals are not for it.
fn wait_and_abort(path: &CString, process: libc::pid_t, thread: libc::pid_t) -> ! {
    // SAFETY: `signals` and `path` live through the calls that get them; all others are passed
    // numbers.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut signals);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const signals, std::ptr::null_mut());
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, ENDED);
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, ENDED);
        // The thread may have ended before the signal was set up.
        if libc::syscall(libc::SYS_tgkill, process, thread, 0) == 0 {
            let mut signal = 0;
            while libc::sigwait(&raw const signals, &raw mut signal) != 0 {}
        }
        // The mount is busy and stays; the force aborts its connection before the kernel checks
        // that.
        libc::umount2(path.as_ptr(), libc::MNT_FORCE | libc::UMOUNT_NOFOLLOW);
        libc::_exit(0)
    }
}
