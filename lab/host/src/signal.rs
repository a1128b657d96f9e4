//! Stopping, waking and killing processes that a lab has started.
//!
//! *Owns*: three signals to one process or to one group, and whether a child has ended. *May not
//! touch*: other processes, as far as numbers can show: 0 and 1, which mean our own group and all
//! processes, are refused. The caller has not waited for the child yet, so its number belongs to no
//! other process.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use inkstone_io::{Error, Result};

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
    fn name(self) -> &'static str {
        match self {
            Signal::Stop => "send SIGSTOP to",
            Signal::Continue => "send SIGCONT to",
            Signal::Kill => "send SIGKILL to",
        }
    }

    fn number(self) -> rustix::process::Signal {
        match self {
            Signal::Stop => rustix::process::Signal::STOP,
            Signal::Continue => rustix::process::Signal::CONT,
            Signal::Kill => rustix::process::Signal::KILL,
        }
    }
}

/// Sends a signal to a child that has not been waited for.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub fn signal_process(process: u32, signal: Signal) -> Result<()> {
    let place = PathBuf::from(format!("process {process}"));
    let pid = number(process).ok_or_else(|| refused(signal.name(), &place))?;
    kill_process(pid, signal.number()).map_err(|error| Error::new(signal.name(), place, error))
}

/// Sends a signal to every process of the group that a child leads
/// (`CommandExt::process_group(0)`).
///
/// # Errors
/// The group has no process, or belongs to another user.
pub fn signal_group(leader: u32, signal: Signal) -> Result<()> {
    let place = PathBuf::from(format!("process group {leader}"));
    let pid = number(leader).ok_or_else(|| refused(signal.name(), &place))?;
    kill_process_group(pid, signal.number())
        .map_err(|error| Error::new(signal.name(), place, error))
}

/// Whether a child has ended. This does not wait for it, so its number stays its own.
///
/// # Errors
/// It is not a child of this process, or was waited for already.
pub fn has_ended(child: u32) -> Result<bool> {
    let place = PathBuf::from(format!("process {child}"));
    let what = "wait for";
    let pid = number(child).ok_or_else(|| refused(what, &place))?;
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ended = waitid(WaitId::Pid(pid), how).map_err(|error| Error::new(what, &place, error))?;
    Ok(ended.is_some())
}

fn number(process: u32) -> Option<Pid> {
    i32::try_from(process).ok().filter(|raw| *raw > 1).and_then(Pid::from_raw)
}

fn refused(what: &'static str, place: &Path) -> Error {
    Error::invalid(what, place, "it is not a child of this process")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Command, Stdio};

    use super::*;

    fn state(process: u32) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    #[test]
    fn a_child_is_stopped_goes_on_and_is_killed() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        signal_process(child.id(), Signal::Stop).expect("stopped");
        while state(child.id()) != Some('T') {
            std::thread::yield_now();
        }
        signal_process(child.id(), Signal::Continue).expect("it goes on");
        while state(child.id()) == Some('T') {
            std::thread::yield_now();
        }
        assert!(!has_ended(child.id()).expect("a child"));
        signal_process(child.id(), Signal::Kill).expect("killed");
        while !has_ended(child.id()).expect("a child") {
            std::thread::yield_now();
        }
        assert!(has_ended(child.id()).expect("still a child"), "asking takes nothing away");
        assert_eq!(child.wait().expect("its end").signal(), Some(libc::SIGKILL));
        assert!(has_ended(child.id()).is_err());
    }

    #[test]
    fn a_group_is_killed_with_those_that_its_leader_has_started() {
        let mut leader = Command::new("sh");
        leader.args(["-c", "sleep 1000 & wait"]).stdout(Stdio::piped()).process_group(0);
        let mut leader = leader.spawn().expect("sh");
        signal_group(leader.id(), Signal::Kill).expect("killed");
        // The pipe ends when the last process that holds it has ended.
        let mut out = leader.stdout.take().expect("a pipe");
        assert_eq!(std::io::Read::read_to_end(&mut out, &mut Vec::new()).expect("its end"), 0);
        assert_eq!(leader.wait().expect("its end").signal(), Some(libc::SIGKILL));
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
