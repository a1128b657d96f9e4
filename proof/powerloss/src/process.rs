//! A process that a lab starts, hears line by line, and kills with everything that it has started.
//!
//! *Owns*: the process and the clock. *May not touch*: what its lines mean.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inkstone_host::{
    Network, Patience, Signal, has_ended, signal_group, signal_process, spawn_apart,
};

/// Of what a program said, the beginning and the end are shown, each up to this length,
const COMPLAINT_BYTES: usize = 600;
/// and each is kept up to this one.
const KEPT_BYTES: usize = 64 << 10;
/// A line that is longer is cut, and the last one that is heard.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// So many lines wait to be heard; then the process waits.
const LINES_WAITING: usize = 64;
/// A killed process ends at once, unless the kernel holds it.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// How long the end of a message may take when its process has ended: who left the group may hold
/// the pipe.
const COMPLAINT_WITHIN: Duration = Duration::from_secs(1);
/// How often a wait checks whether it must stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How a writer of ours is started: this program with these arguments, then a directory and the
/// words of what it does.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    /// What comes first.
    pub arguments: Vec<String>,
}

/// How long something is waited for, at most.
#[derive(Debug, Clone, Copy)]
pub struct Within<'a> {
    pub limit: Duration,
    /// Set when the lab is to end.
    pub stop: &'a AtomicBool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A line, with its end; the last one of a killed process may have none, nor has one that is
    /// too long.
    Line(Vec<u8>),
    Ended,
    Silent,
}

/// The lab is to end.
#[derive(Debug)]
pub struct Stopped;

/// A process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Receiver<Vec<u8>>,
    complaint: Option<(Arc<Mutex<Complaint>>, Receiver<Infallible>)>,
    is_over: bool,
}

impl Process {
    /// Starts a command in a process group of its own, so that a kill reaches everything that it
    /// starts.
    pub fn start(command: &mut Command) -> std::io::Result<Self> {
        Ok(Self::hearing(command.process_group(0).stdout(Stdio::piped()).spawn()?))
    }

    /// Starts a command in namespaces of its own ([`spawn_apart`]), so that a kill reaches what
    /// leaves the process group, too.
    pub fn start_apart(
        command: &mut Command,
        network: Network,
        directory: &Path,
    ) -> std::io::Result<Self> {
        let command = command.process_group(0).stdout(Stdio::piped());
        spawn_apart(command, network, directory).map(Self::hearing).map_err(std::io::Error::other)
    }

    fn hearing(mut child: Child) -> Self {
        let complaint = child.stderr.take().map(|pipe| {
            let said = Arc::new(Mutex::new(Complaint::default()));
            let (open, closed) = sync_channel(0);
            let heard = Arc::clone(&said);
            // Ends with the last process that holds the pipe.
            std::thread::spawn(move || {
                hear_all(pipe, &heard);
                drop(open);
            });
            (said, closed)
        });
        let (tell, lines) = sync_channel(LINES_WAITING);
        let out = child.stdout.take();
        // Ends with the process, whose output it reads.
        std::thread::spawn(move || {
            let Some(mut out) = out.map(BufReader::new) else { return };
            loop {
                let mut line = Vec::new();
                let mut room = out.by_ref().take(LINE_BYTES_MAX as u64);
                // An error is the pipe's end too.
                let length = room.read_until(b'\n', &mut line).unwrap_or(0);
                let is_last = length == 0 || length == LINE_BYTES_MAX && !line.ends_with(b"\n");
                if length > 0 && tell.send(line).is_err() || is_last {
                    return;
                }
            }
        });
        Self { child, lines, complaint, is_over: false }
    }

    /// Starts a program of ours, which listens.
    pub fn of(program: &Program, directory: &Path, words: &str) -> Result<Self, String> {
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).arg(directory).arg(words).stdin(Stdio::piped());
        Self::start(&mut command).map_err(|error| format!("{}: {error}", program.path.display()))
    }

    pub fn hear(&self, within: Duration) -> Heard {
        let mut patience = Patience::new(within);
        loop {
            match self.lines.recv_timeout(patience.left().min(LOOK_EVERY)) {
                Ok(line) => return Heard::Line(line),
                Err(RecvTimeoutError::Disconnected) => return Heard::Ended,
                Err(RecvTimeoutError::Timeout) if patience.is_over() => return Heard::Silent,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// The same, as long as the lab goes on.
    pub fn hear_within(
        &self,
        patience: &mut Patience,
        stop: &AtomicBool,
    ) -> Result<Heard, Stopped> {
        while !stop.load(Ordering::Relaxed) {
            match self.hear(patience.left().min(LOOK_EVERY)) {
                Heard::Silent if !patience.is_over() => {}
                heard => return Ok(heard),
            }
        }
        Err(Stopped)
    }

    /// Waits for a whole line of a program of ours.
    pub fn line(&self, limit: Duration, stop: &AtomicBool) -> Result<String, String> {
        match self.hear_within(&mut Patience::new(limit), stop) {
            Ok(Heard::Line(line)) => whole(&line).ok_or("the process ended inside a line".into()),
            Ok(Heard::Ended) => Err("the process ended without a message".into()),
            Ok(Heard::Silent) => Err(format!("the process hangs: no line for {limit:?}")),
            Err(Stopped) => Err("stopped".into()),
        }
    }

    pub fn say(&mut self, word: &str) -> Result<(), String> {
        let input = self.child.stdin.as_mut().ok_or("the process has no input")?;
        writeln!(input, "{word}").map_err(|error| format!("the process has ended: {error}"))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        signal_process(self.id(), signal).map_err(|error| error.to_string())
    }

    /// Kills every process of its group. Nobody has waited for the leader yet, so the number is
    /// still its own.
    pub fn kill(&mut self) {
        if !self.is_over {
            // It fails only when no process is left.
            let _ = signal_group(self.child.id(), Signal::Kill);
        }
    }

    /// Waits this long, then kills what is left. Returns the exit status and the message; `None`:
    /// it had not ended in time, although it was given some, or not even the kill ends it.
    pub fn end(&mut self, within: Duration) -> Option<(ExitStatus, String)> {
        // The leader is reaped only after the whole group is killed: until then the group's number
        // is its own.
        let is_in_time = self.is_gone(within);
        self.kill();
        if !self.is_gone(GONE_WITHIN) {
            return None;
        }
        self.is_over = true;
        let status = self.child.wait().ok();
        let complaint = self.complaint.take().map(|(said, closed)| {
            // Who still holds the pipe says nothing that is waited for.
            let mut patience = Patience::new(COMPLAINT_WITHIN);
            while let Err(RecvTimeoutError::Timeout) =
                closed.recv_timeout(patience.left().min(LOOK_EVERY))
                && !patience.is_over()
            {}
            locked(&said).words()
        });
        let complaint = complaint.unwrap_or_default();
        status.filter(|_| is_in_time || within.is_zero()).map(|status| (status, complaint))
    }

    fn is_gone(&self, within: Duration) -> bool {
        let mut patience = Patience::new(within);
        let has_ended = || has_ended(self.child.id()).unwrap_or(true);
        while !has_ended() && patience.pause(Duration::from_micros(200)) {}
        has_ended()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.end(Duration::ZERO);
        }
    }
}

/// A whole line, without its end.
pub fn whole(line: &[u8]) -> Option<String> {
    Some(String::from_utf8_lossy(line.strip_suffix(b"\n")?).into_owned())
}

/// What a program said: all of it, if that is not much; of more the beginning, a panic, the end.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Complaint {
    fn add(&mut self, piece: &[u8]) {
        let room = KEPT_BYTES - self.first.len();
        let (first, rest) = piece.split_at(room.min(piece.len()));
        self.first.extend(first);
        self.last.extend(rest);
        self.last.drain(..self.last.len().saturating_sub(KEPT_BYTES));
    }

    /// A traceback says last why; behind a panic come many lines about where it was.
    pub(crate) fn words(&self) -> String {
        let all = [&self.first[..], &self.last].concat();
        let most = COMPLAINT_BYTES;
        let between = all.len().checked_sub(most).and_then(|last| all.get(most..last));
        let words = match between {
            None => String::from_utf8_lossy(&all).into_owned(),
            Some(between) => {
                let (first, last) = (&all[..most], &all[all.len() - most..]);
                let between = String::from_utf8_lossy(between);
                let is_why = |line: &&str| ["panic", "fatal"].iter().any(|it| line.contains(it));
                let why = between.lines().skip_while(|line| !is_why(line)).take(2);
                let why: String = why.flat_map(|line| ["\n", line]).collect();
                let why: String = why.chars().take(most).collect();
                let [first, last] = [first, last].map(String::from_utf8_lossy);
                format!("{first}\n...{why}\n...\n{last}")
            }
        };
        words.trim().to_owned()
    }
}

/// Reads to the end: a full pipe would block the program.
pub(crate) fn hear_all(mut pipe: impl Read, said: &Mutex<Complaint>) {
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = pipe.read(&mut piece) {
        locked(said).add(&piece[..count]);
    }
}

fn locked(said: &Mutex<Complaint>) -> MutexGuard<'_, Complaint> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a long traceback only the beginning was shown before, and of a daemon's panic nothing.
    #[test]
    fn of_a_long_message_the_reason_is_heard() {
        let script = "seq 10000; echo goroutine; echo panic: no room; seq 10000; echo why; exit 3";
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec >&2; {script}")]).stderr(Stdio::piped());
        let mut process = Process::start(&mut shell).expect("sh");
        let (status, said) = process.end(Duration::from_secs(60)).expect("it ends");
        assert_eq!(status.code(), Some(3));
        assert!(said.starts_with("1\n2\n") && said.ends_with("\n10000\nwhy"), "{said}");
        assert!(said.contains("\n...\npanic: no room\n1\n...\n"), "{said}");
        assert!(said.len() < 3 * COMPLAINT_BYTES, "{said}");
    }
}
