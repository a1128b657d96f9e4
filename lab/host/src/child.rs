//! Children made by `fork` alone, and surroundings that a test wants for one: no standard
//! descriptors, no descriptors left, no root, system calls that are refused.
//!
//! *Owns*: making and waiting for the child; what is taken from the calling process or thread. *May
//! not touch*: what the child does, and other threads. Most of it is for good, so it is for a
//! process of a test's own.

use std::fmt::Display;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::path::Path;

use inkstone_io::transfer::retry;
use inkstone_io::{Error, Result};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, getrlimit, setrlimit, waitpid};

/// A forked child that was not waited for.
#[derive(Debug)]
#[must_use = "a child that is not waited for stays a zombie"]
pub struct ForkedChild {
    process: libc::pid_t,
}

impl ForkedChild {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.unsigned_abs()
    }

    /// Waits for its end, and returns its exit code.
    ///
    /// # Errors
    /// A signal ended it.
    pub fn wait(self) -> Result<u8> {
        let place = Path::new("a child");
        let pid = Pid::from_raw(self.process);
        let ended = retry(|| Ok(waitpid(pid, WaitOptions::empty())?))
            .map_err(|source| Error::new("waitpid", place, source))?;
        let status = ended.map(|(_, status)| status);
        match status.and_then(|status| status.exit_status()) {
            Some(code) => Ok(u8::try_from(code).unwrap_or(255)),
            None => {
                let signal = status.and_then(|status| status.terminating_signal()).unwrap_or(0);
                Err(Error::invalid("run", place, format!("signal {signal} ended it")))
            }
        }
    }
}

/// Runs `work` in a forked child, which has only this thread, and every lock in the state at the
/// fork. The child ends with the result as its exit code; 255 if `work` panicked. `work` has copies
/// of everything. A child that takes another thread's lock hangs: this is for tests.
///
/// # Errors
/// There is no room for another process.
pub fn fork_child(work: impl FnOnce() -> u8) -> Result<ForkedChild> {
    // SAFETY: the child runs `work` on a copy of this thread's stack and leaves by `_exit`, never
    // returning into the parent's code; locks that other threads held stay locked for it, as if
    // those threads had stopped forever.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(255);
        // SAFETY: ends the child at once, without running anything of the parent's.
        unsafe { libc::_exit(i32::from(code)) };
    }
    if process < 0 {
        return Err(Error::new("fork", Path::new("a child"), std::io::Error::last_os_error()));
    }
    Ok(ForkedChild { process })
}

/// As [`fork_child`], waited for.
///
/// # Errors
/// As [`fork_child`] and [`ForkedChild::wait`].
pub fn in_forked_child(work: impl FnOnce() -> u8) -> Result<u8> {
    fork_child(work)?.wait()
}

/// Runs a test of this program alone: false where the test was run and has passed in a process of
/// its own, in which this returns true. A thread that starts or ends holds a lock of the standard
/// library for a moment, and a child that is forked then can never start a thread. Other tests
/// start threads at any time.
///
/// # Panics
/// The test failed there.
pub fn alone(test: &str) -> bool {
    const ROLE: &str = "INKSTONE_TEST_ALONE";
    if std::env::var_os(ROLE).is_some_and(|alone| alone == test) {
        return true;
    }
    let this = std::env::current_exe().expect("this program");
    let mut command = std::process::Command::new(this);
    let ran = command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(ROLE, test);
    let ran = ran.output().expect("a process");
    let said = String::from_utf8_lossy(&ran.stdout);
    let all = || format!("{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && said.contains("1 passed"), "{test}, alone: {}", all());
    false
}

/// Prints loudly that a test did not run, and why, past the test harness, which hides what a
/// passing test prints.
pub fn not_run(test: &str, why: impl Display) {
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {test}: {why}\n").as_bytes());
}

/// Closes stdin, stdout and stderr, as a daemon does: the next opened files get their numbers. For
/// a separate process of a test, whose standard library writes to stderr by its number only.
pub fn close_standard_descriptors() {
    for number in 0..3 {
        // SAFETY: no memory is passed. No value owns the three: the standard library uses their
        // numbers, and expects that they may be closed.
        unsafe { libc::close(number) };
    }
}

/// The user and group that have no rights, on every Linux.
const NOBODY: libc::c_uint = 65534;

/// Makes this process that of the user `nobody`, for good, as daemons do that root has started.
///
/// # Errors
/// It does not run as root.
pub fn give_up_root() -> Result<()> {
    // SAFETY: no memory is passed to any of the three; the C library has all threads make the
    // change.
    let answers = unsafe {
        [libc::setgroups(0, std::ptr::null()), libc::setgid(NOBODY), libc::setuid(NOBODY)]
    };
    given_up(answers.iter().all(|answer| *answer == 0))
}

/// Runs `call` while no thread of this process can open a file: as many are open as it may have.
/// For a process of a test's own.
///
/// # Errors
/// The limit of open files cannot be changed, or there is no descriptor left already.
pub fn without_descriptors<T>(call: impl FnOnce() -> T) -> Result<T> {
    let failed = |what, why: std::io::Error| Error::new(what, Path::new("/dev/null"), why);
    let all = getrlimit(Resource::Nofile);
    // The lowest number that is free is the limit: no other can be had.
    let free = std::fs::File::open("/dev/null").map_err(|why| failed("open", why))?;
    let none = Rlimit { current: Some(free.as_raw_fd() as u64), maximum: all.maximum };
    drop(free);
    setrlimit(Resource::Nofile, none).map_err(|why| failed("setrlimit", why.into()))?;
    let done = call();
    setrlimit(Resource::Nofile, all).map_err(|why| failed("setrlimit", why.into()))?;
    Ok(done)
}

/// Makes only the calling thread that of the user `nobody`, for good.
///
/// # Errors
/// It does not run as root.
pub fn give_up_root_on_this_thread() -> Result<()> {
    // SAFETY: no memory is passed. By the system call itself, which is about one thread.
    let answer = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    given_up(answer == 0)
}

fn given_up(is_done: bool) -> Result<()> {
    let failed =
        || Error::new("setuid", Path::new("this process"), std::io::Error::last_os_error());
    if is_done { Ok(()) } else { Err(failed()) }
}

/// A system call that is refused.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    /// Its number (`libc::SYS_...`).
    pub call: libc::c_long,
    /// Only if an argument is so.
    pub only: Only,
}

/// Which of the calls with one number.
#[derive(Debug, Clone, Copy)]
pub enum Only {
    /// All.
    All,
    /// Those whose argument with this index, counted from 0, has one of these bits.
    WithBits(u32, u32),
    /// Those whose argument with this index is this.
    With(u32, u32),
}

/// Where `struct seccomp_data` has the number of the call, and the low half of its first argument
/// (little endian).
const NUMBER_AT: u32 = 0;
const FIRST_ARGUMENT_AT: u32 = 16;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const HAS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const ANSWER: u32 = libc::BPF_RET | libc::BPF_K;

fn step(code: u32, value: u32, if_not: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: if_not, k: value }
}

impl Refusal {
    /// The steps of the filter for this call, which go on behind themselves if it is another.
    fn steps(&self, errno: i32) -> Vec<libc::sock_filter> {
        let refuse = step(ANSWER, libc::SECCOMP_RET_ERRNO | errno.unsigned_abs(), 0);
        let (test, index, value) = match self.only {
            Only::All => {
                return vec![step(LOAD, NUMBER_AT, 0), step(IS, self.call as u32, 1), refuse];
            }
            Only::WithBits(index, bits) => (HAS, index, bits),
            Only::With(index, value) => (IS, index, value),
        };
        vec![
            step(LOAD, NUMBER_AT, 0),
            step(IS, self.call as u32, 3),
            step(LOAD, FIRST_ARGUMENT_AT + 8 * index, 0),
            step(test, value, 1),
            refuse,
        ]
    }
}

/// Refuses these calls with this answer from now on, in this thread and those that it starts.
///
/// # Errors
/// This kernel has no seccomp filters.
pub fn refuse(calls: &[Refusal], errno: i32) -> Result<()> {
    let mut steps: Vec<_> = calls.iter().flat_map(|call| call.steps(errno)).collect();
    steps.push(step(ANSWER, libc::SECCOMP_RET_ALLOW, 0));
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the filter and its steps live through the call, which copies them; the other call
    // passes no memory.
    let answers = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter),
        ]
    };
    if answers == [0, 0] {
        return Ok(());
    }
    Err(Error::new("seccomp", Path::new("this thread"), std::io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_answer_and_its_panic_come_back() {
        let mine = std::process::id();
        assert_eq!(in_forked_child(|| u8::from(std::process::id() != mine)).expect("a child"), 1);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        assert_eq!(in_forked_child(|| panic!("on purpose")).expect("a child"), 255);
        std::panic::set_hook(hook);
    }
}
