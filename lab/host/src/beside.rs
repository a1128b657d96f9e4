//! Processes that run beside a measurement: a lab starts them, pauses them between rounds, and
//! takes them with it when it ends.
//!
//! *Owns*: their start, their pauses, their end, also after a kill of the lab; spinning. *May not
//! touch*: what else they do, and processes that this one has not started.
//!
//! A killed lab cannot end its helpers. So each asks the kernel to be killed when the thread that
//! started it ends ([`end_with_parent`]).

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use inkstone_io::transfer::retry;
use inkstone_io::{Error, Result};
use rustix::process::{
    Pid, Signal as Number, WaitId, WaitIdOptions, getppid, set_parent_process_death_signal, waitid,
};

use crate::signal::{Signal, signal_process};

/// A process that this one has started, with a pipe in each direction. Dropping it kills it and
/// waits for its end.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    input: ChildStdin,
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
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Error::new("start", program, error))?;
        let input = child.stdin.take().expect("a pipe was asked for");
        let output = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let place = PathBuf::from(format!("process {}", child.id()));
        Ok(Self { child, input, output, place })
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
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::invalid("pause", &self.place, "it has no number"))?;
        // Nothing is taken away: what has ended keeps its number until it is dropped.
        let how = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let seen = retry(|| waitid(WaitId::Pid(pid), how).map_err(std::io::Error::from))
            .map_err(|error| Error::new("wait for", &self.place, error))?;
        match seen {
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

    /// Processor time that its first thread has used so far, in nanoseconds; `None` if the kernel
    /// does not say.
    pub fn cpu_ns(&self) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.id())).ok()?;
        text.split(' ').next()?.parse().ok()
    }

    /// Writes a line to its stdin.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let told = self.input.write_all(format!("{line}\n").as_bytes());
        told.map_err(|error| Error::new("write to", &self.place, error))
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
        // It may have ended already; a process that has ended and was not waited for keeps its
        // number.
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
    let is_there = getppid().is_some_and(|pid| pid.as_raw_nonzero().get().unsigned_abs() == parent);
    if is_there {
        return Ok(());
    }
    Err(Error::invalid("run", place, format!("its parent {parent} has ended")))
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
        let used = helper.cpu_ns();
        assert!(used > Some(0), "{used:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(helper.cpu_ns(), used, "it pauses");
        drop(helper);
        assert_eq!(state(process), None, "a paused one too");
    }

    #[test]
    fn a_helper_answers_and_its_end_is_an_error() {
        let mut helper = shell("read line; echo \"got $line\"");
        helper.tell("this").expect("it reads");
        assert_eq!(helper.answer().expect("a line"), "got this");
        let error = helper.answer().expect_err("it has ended").to_string();
        assert!(error.contains("without an answer"), "{error}");
        assert!(helper.pause().is_err(), "it has ended");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error =
            Helper::start(Path::new("/nowhere/at-all"), [""]).expect_err("no program").to_string();
        assert!(error.contains("/nowhere/at-all"), "{error}");
    }

    #[test]
    fn a_process_with_another_parent_does_not_begin() {
        let (mine, answer) =
            (std::process::id(), crate::in_forked_child(|| u8::from(end_with_parent(1).is_err())));
        assert_eq!(answer.expect("a child"), 1);
        let answer = crate::in_forked_child(move || u8::from(end_with_parent(mine).is_ok()));
        assert_eq!(answer.expect("a child"), 1);
    }
}
