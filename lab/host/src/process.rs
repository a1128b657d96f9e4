//! Processes that a lab starts: pausing, waking and killing them, hearing them, and their end
//! with the lab's own.
//!
//! *Owns*: their start, their pauses, their end, also after a kill of the lab. *May not touch*:
//! what else they do, and other processes, as far as numbers can show: 0 and 1, which mean our own
//! group and all processes, are refused. A child that was not waited for yet keeps its number.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use inkstone_io::transfer::retry;
use inkstone_io::{Error, Result};
use rustix::process::{
    Pid, Signal as Number, WaitId, WaitIdOptions, WaitIdStatus, getppid, kill_process,
    kill_process_group, set_parent_process_death_signal, waitid,
};

/// What is done to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGSTOP: it does nothing until it is continued.
    Stop,
    /// SIGCONT: it continues.
    Continue,
    /// SIGKILL: it ends at once, also while it is stopped.
    Kill,
}

impl Signal {
    fn named(self) -> (&'static str, Number) {
        match self {
            Signal::Stop => ("send SIGSTOP to", Number::STOP),
            Signal::Continue => ("send SIGCONT to", Number::CONT),
            Signal::Kill => ("send SIGKILL to", Number::KILL),
        }
    }
}

/// Sends a signal to a child that has not been waited for.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub fn signal_process(process: u32, signal: Signal) -> Result<()> {
    let (what, number) = signal.named();
    on_child(what, process, |pid| kill_process(pid, number))
}

/// Sends a signal to every process of the group that a child leads
/// (`CommandExt::process_group(0)`).
///
/// # Errors
/// The group has no process, or belongs to another user.
pub fn signal_group(leader: u32, signal: Signal) -> Result<()> {
    let (what, number) = signal.named();
    on_child(what, leader, |pid| kill_process_group(pid, number))
}

/// Whether a child has ended. This does not wait for it, so its number stays its own.
///
/// # Errors
/// It is not a child of this process, or was waited for already.
pub fn has_ended(child: u32) -> Result<bool> {
    Ok(look_at(child, WaitIdOptions::EXITED | WaitIdOptions::NOHANG)?.is_some())
}

/// What `waitid` says of a child, without taking it away.
fn look_at(child: u32, how: WaitIdOptions) -> Result<Option<WaitIdStatus>> {
    on_child("wait for", child, |pid| waitid(WaitId::Pid(pid), how | WaitIdOptions::NOWAIT))
}

fn on_child<T>(
    what: &'static str,
    process: u32,
    call: impl Fn(Pid) -> rustix::io::Result<T>,
) -> Result<T> {
    let place = PathBuf::from(format!("process {process}"));
    let pid = i32::try_from(process).ok().filter(|raw| *raw > 1).and_then(Pid::from_raw);
    let Some(pid) = pid else {
        return Err(Error::invalid(what, &place, "it is not a child of this process"));
    };
    retry(|| Ok(call(pid)?)).map_err(|error| Error::new(what, &place, error))
}

/// A process that this one has started, with a pipe from its stdout. Dropping it kills it and
/// waits for its end. A killed lab cannot do that, so each asks the kernel to be killed when the
/// thread that started it ends ([`end_with_parent`]).
#[derive(Debug)]
pub struct Helper {
    child: Child,
    output: BufReader<ChildStdout>,
    place: PathBuf,
}

impl Helper {
    /// Starts a program. It is to call [`end_with_parent`] first, with the number of this process.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start<A: AsRef<OsStr>>(
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Error::new("start", program, error))?;
        let output = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let place = PathBuf::from(format!("process {}", child.id()));
        Ok(Self { child, output, place })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops it (SIGSTOP), and returns when it has stopped: from then on it uses no processor.
    ///
    /// # Errors
    /// It has ended.
    pub fn pause(&self) -> Result<()> {
        signal_process(self.id(), Signal::Stop)?;
        match look_at(self.id(), WaitIdOptions::STOPPED | WaitIdOptions::EXITED)? {
            Some(status) if status.stopped() => Ok(()),
            _ => Err(Error::invalid("pause", &self.place, "it has ended")),
        }
    }

    /// Lets it run again (SIGCONT).
    ///
    /// # Errors
    /// It has ended.
    pub fn resume(&self) -> Result<()> {
        signal_process(self.id(), Signal::Continue)
    }

    /// Waits for a line of its stdout.
    ///
    /// # Errors
    /// It has ended without one.
    pub fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        match read.map_err(|error| Error::new("read from", &self.place, error))? {
            0 => Err(Error::invalid("read from", &self.place, "it ended without an answer")),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has the kernel kill this process (SIGKILL) when the thread that started it ends. `parent` is the
/// process of that thread.
///
/// # Errors
/// The parent has ended already, or the kernel refuses.
pub fn end_with_parent(parent: u32) -> Result<()> {
    let place = Path::new("this process");
    set_parent_process_death_signal(Some(Number::KILL))
        .map_err(|error| Error::new("ask for the parent's end in", place, error))?;
    // The parent may have ended before the kernel was asked.
    match getppid() {
        Some(pid) if pid.as_raw_nonzero().get().unsigned_abs() == parent => Ok(()),
        _ => Err(Error::invalid("run", place, format!("its parent {parent} has ended"))),
    }
}

/// Uses a processor until the process is killed. It makes no system calls, and no pauses that a
/// hypervisor may see.
pub fn spin() -> ! {
    let mut turns = 0u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

    use super::*;

    fn state(process: u32) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    fn shell(script: &str) -> Helper {
        Helper::start(Path::new("/bin/sh"), ["-c", script]).expect("sh")
    }

    #[test]
    fn a_helper_is_stopped_when_pause_returns_and_gone_when_it_is_dropped() {
        let helper = shell("while :; do :; done");
        for _ in 0..20 {
            helper.pause().expect("it runs");
            assert_eq!(state(helper.id()), Some('T'));
            helper.resume().expect("it is there");
            assert_ne!(state(helper.id()), Some('T'));
        }
        let process = helper.id();
        helper.pause().expect("it runs");
        drop(helper);
        assert_eq!(state(process), None, "a paused one too");
    }

    #[test]
    fn a_helper_answers_and_its_end_is_an_error() {
        let mut helper = shell("echo this");
        assert_eq!(helper.answer().expect("a line"), "this");
        let error = helper.answer().expect_err("it has ended").to_string();
        assert!(error.contains("without an answer"), "{error}");
        assert!(helper.pause().is_err(), "it has ended");
        let error = Helper::start(Path::new("/nowhere/at-all"), [""]).expect_err("no program");
        assert!(error.to_string().contains("/nowhere/at-all"), "{error}");
    }

    #[test]
    fn a_process_with_another_parent_does_not_begin() {
        let mine = std::process::id();
        for (parent, can_begin) in [(1, false), (mine, true)] {
            let child = crate::in_forked_child(|| u8::from(end_with_parent(parent).is_ok()));
            assert_eq!(child.expect("a child"), u8::from(can_begin));
        }
    }

    #[test]
    fn a_group_is_killed_with_those_that_its_leader_has_started() {
        let mut leader = Command::new("sh");
        leader.args(["-c", "sleep 1000 & wait"]).stdout(Stdio::piped()).process_group(0);
        let mut leader = leader.spawn().expect("sh");
        assert!(!has_ended(leader.id()).expect("a child"));
        signal_group(leader.id(), Signal::Kill).expect("killed");
        // The pipe ends when the last process that holds it has ended.
        let mut out = leader.stdout.take().expect("a pipe");
        assert_eq!(std::io::Read::read_to_end(&mut out, &mut Vec::new()).expect("its end"), 0);
        while !has_ended(leader.id()).expect("a child, asking takes nothing away") {
            std::thread::yield_now();
        }
        assert_eq!(leader.wait().expect("its end").signal(), Some(libc::SIGKILL));
        assert!(has_ended(leader.id()).is_err());
    }

    #[test]
    fn numbers_that_mean_many_are_refused() {
        for process in [0, 1, u32::MAX] {
            let one = signal_process(process, Signal::Kill).expect_err("no child").to_string();
            assert!(one.contains("SIGKILL") && one.contains("not a child"), "{one}");
            assert!(signal_group(process, Signal::Kill).is_err() && has_ended(process).is_err());
        }
    }
}
