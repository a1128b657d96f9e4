//! System calls that are refused from now on, as a sandbox refuses them: a seccomp filter made by
//! hand.
//!
//! *Owns*: the filter of the calling thread, and of those that it starts. *May not touch*: other
//! threads. A filter is for good, so this is for a child of a test.

use std::path::Path;

use inkstone_io::{Error, Result};

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
