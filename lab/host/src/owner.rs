//! The maker of a thing that may outlive it: a process id that cannot be mistaken for that of a
//! later process.
//!
//! *Owns*: pid plus start time, as part of a name, and whether that process still lives. *May not
//! touch*: processes.

use std::fmt;
use std::fs;

/// A process, distinguished from every later one with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pid: u32,
    /// Field 22 of `/proc/<pid>/stat`: clock ticks between the boot and the start of the process.
    started_ticks: u64,
}

impl Owner {
    /// This process. Without /proc its start time is 0, and then nothing here is ever swept: the
    /// safe side.
    pub(super) fn current() -> Owner {
        let pid = std::process::id();
        Owner { pid, started_ticks: started_ticks(pid).unwrap_or(0) }
    }

    /// Reads `<pid>-<starttime>` at the start of `text` and returns what follows it.
    pub(super) fn parse(text: &str) -> Option<(Owner, &str)> {
        let (pid, rest) = number(text)?;
        let (started_ticks, rest) = number(rest.strip_prefix('-')?)?;
        Some((Owner { pid: u32::try_from(pid).ok()?, started_ticks }, rest))
    }

    /// Whether the process lives, as far as this pid namespace can see.
    ///
    /// A sweep in another container may take a living owner for dead. That does no harm: the kernel
    /// refuses to remove a trace instance with open files, and to unmount a file system in use.
    pub(super) fn is_alive(self) -> bool {
        match started_ticks(self.pid) {
            Some(ticks) => ticks == self.started_ticks || self.started_ticks == 0,
            // No such process, or no /proc at all: without /proc no process counts as dead.
            None => !fs::exists("/proc/self/stat").unwrap_or(false),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.started_ticks)
    }
}

/// A decimal number at the start of `text`, and what follows it.
pub(super) fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

fn started_ticks(pid: u32) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_started_ticks(&String::from_utf8_lossy(&text))
}

fn parse_started_ticks(stat: &str) -> Option<u64> {
    // The second field is the name in parentheses and may hold spaces and parentheses itself.
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_its_end_and_an_older_one_of_its_id_does_not() {
        let me = Owner::current();
        assert!(me.is_alive() && !Owner { started_ticks: me.started_ticks + 1, ..me }.is_alive());
        assert_eq!(Owner::parse(&format!("{me}-3")), Some((me, "-3")));
        for wrong in ["", "12", "12-", "-12-3", "x-1", "99999999999-1"] {
            assert_eq!(Owner::parse(wrong), None, "{wrong}");
        }
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let started_ticks = started_ticks(child.id()).expect("it lives");
        let owner = Owner { pid: child.id(), started_ticks };
        assert!(owner.is_alive());
        child.kill().and_then(|()| child.wait()).expect("our child");
        assert!(!owner.is_alive());
    }

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 2 3";
        assert_eq!((parse_started_ticks(stat), parse_started_ticks("garbage")), (Some(4242), None));
    }
}
