//! The two programs: the shell starts them, their output is read, and they are killed with
//! everything that they have started.
//!
//! *Owns*: their processes. *May not touch*: what their lines mean.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use inkstone_host::{Signal, has_ended, signal_group};

use super::{AnyError, Moment};

const PLACEHOLDER: &str = "{dir}";
/// A message of a program is shown up to this length.
const COMPLAINT_BYTES: usize = 600;
/// The shell's exit codes for a program that it cannot run, and for one that it cannot find.
const CANNOT_START: [i32; 2] = [126, 127];
/// After a kill the pipe ends at once, unless another process holds it.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// What a writer has printed, and how it ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    /// Whole lines.
    pub(super) lines: Vec<Vec<u8>>,
    /// From its start to its first line.
    pub(super) first_line: Option<Duration>,
    /// It had not ended by itself.
    pub(super) was_killed: bool,
    /// It ended by itself, with an error.
    pub(super) failed: Option<String>,
}

/// What a reader has found.
#[derive(Debug, Clone)]
pub(super) enum Lines {
    /// These lines.
    Read(Vec<Vec<u8>>),
    /// It ended with an error, or did not end.
    Failed(String),
}

/// A command for the shell.
#[derive(Debug, Clone)]
pub(super) struct Program {
    /// The argument that named it.
    what: &'static str,
    command: String,
}

impl Program {
    pub(super) fn new(what: &'static str, command: &str) -> Result<Self, AnyError> {
        if !command.contains(PLACEHOLDER) {
            return Err(AnyError::Command(format!(
                "{what} {command:?} has no place for the directory: put {PLACEHOLDER} there"
            )));
        }
        Ok(Self { what, command: command.to_owned() })
    }

    fn start(&self, directory: &Path) -> Result<Group, AnyError> {
        let Some(directory) = directory.to_str() else {
            return Err(AnyError::Other(format!(
                "the shell cannot take the path {}",
                directory.display()
            )));
        };
        let quoted = format!("'{}'", directory.replace('\'', r"'\''"));
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(self.command.replace(PLACEHOLDER, &quoted));
        // A group of its own, so that the kill reaches everything that it starts.
        shell.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = shell.spawn();
        let mut child =
            child.map_err(|error| self.fault(&format!("cannot be started: sh: {error}")))?;
        let complaint =
            child.stderr.take().map(|pipe| std::thread::spawn(move || first_bytes(pipe)));
        let out = child.stdout.take().ok_or_else(|| self.fault("has no stdout"))?;
        let (tell, heard) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            loop {
                let mut line = Vec::new();
                // An error is the pipe's end too.
                if out.read_until(b'\n', &mut line).unwrap_or(0) == 0 || tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Group { child, heard, complaint, is_over: false })
    }

    fn fault(&self, words: &str) -> AnyError {
        AnyError::Command(format!("{} {:?} {words}", self.what, self.command))
    }

    fn check_started(&self, status: ExitStatus, complaint: &str) -> Result<(), AnyError> {
        match status.code() {
            Some(code) if CANNOT_START.contains(&code) => {
                Err(self.fault(&format!("cannot be started: exit code {code}{}", said(complaint))))
            }
            _ => Ok(()),
        }
    }

    /// Starts a writer and kills it at its moment; `told` gets the number of whole lines after each
    /// line.
    pub(super) fn write(
        &self,
        directory: &Path,
        moment: &Moment,
        limit: Duration,
        told: &mut dyn FnMut(u64),
    ) -> Result<Written, AnyError> {
        let began = Instant::now();
        let mut group = self.start(directory)?;
        let mut written = Written::default();
        let mut take = |line: Vec<u8>, written: &mut Written| {
            if let Some(line) = line.strip_suffix(b"\n") {
                written.lines.push(line.to_vec());
                written.first_line.get_or_insert_with(|| began.elapsed());
                told(written.lines.len() as u64);
            }
        };
        while (written.lines.len() as u64) < u64::from(moment.lines) {
            match group.heard.recv_timeout(limit) {
                Ok(line) => take(line, &mut written),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let complaint =
                        group.end(Duration::ZERO).map_or(String::new(), |(_, complaint)| complaint);
                    return Err(self.fault(&format!(
                        "has printed nothing for {limit:?}, after {} lines: it must flush each line when its item is durable{}",
                        written.lines.len(),
                        said(&complaint)
                    )));
                }
            }
        }
        std::thread::sleep(moment.delay);
        group.kill();
        let gone_by = Instant::now() + GONE_WITHIN;
        loop {
            match group.heard.recv_timeout(gone_by.saturating_duration_since(Instant::now())) {
                Ok(line) => take(line, &mut written),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.fault(
                        "was killed, but a process that it started still holds its stdout: that must not leave the process group",
                    ));
                }
            }
        }
        let (status, complaint) = group.end(limit).ok_or_else(|| self.fault("does not end"))?;
        self.check_started(status, &complaint)?;
        written.was_killed = status.signal() == Some(9);
        if !written.was_killed && !status.success() {
            written.failed =
                Some(format!("{} {:?}: {status}{}", self.what, self.command, said(&complaint)));
        }
        Ok(written)
    }

    /// Starts a reader and collects its lines.
    pub(super) fn read(&self, directory: &Path, limit: Duration) -> Result<Lines, AnyError> {
        let until = Instant::now() + limit;
        let mut group = self.start(directory)?;
        let mut lines = Vec::new();
        loop {
            match group.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    return Ok(Lines::Failed(format!("it did not end within {limit:?}")));
                }
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        let Some((status, complaint)) = group.end(left) else {
            return Ok(Lines::Failed(format!("it did not end within {limit:?}")));
        };
        self.check_started(status, &complaint)?;
        if !status.success() {
            return Ok(Lines::Failed(format!("{status}{}", said(&complaint))));
        }
        let number = lines.len();
        if lines.last().is_some_and(|line| !line.ends_with(b"\n")) {
            return Err(
                self.fault(&format!("ends inside line {number}: each item must be a whole line"))
            );
        }
        lines.iter_mut().for_each(|line| line.truncate(line.len() - 1));
        Ok(Lines::Read(lines))
    }
}

fn said(complaint: &str) -> String {
    if complaint.is_empty() { String::new() } else { format!(", with the message {complaint:?}") }
}

/// The first bytes of a message: what follows is often a backtrace.
fn first_bytes(mut pipe: impl Read) -> String {
    let mut first = Vec::new();
    let mut piece = [0; 4096];
    // Read to the end all the same: a full pipe would block the program.
    while let Ok(count @ 1..) = pipe.read(&mut piece) {
        let room = COMPLAINT_BYTES.saturating_sub(first.len());
        first.extend_from_slice(&piece[..count.min(room)]);
    }
    String::from_utf8_lossy(&first).trim().to_owned()
}

/// A program with everything that it has started; killed when it is dropped.
struct Group {
    child: Child,
    heard: Receiver<Vec<u8>>,
    complaint: Option<JoinHandle<String>>,
    is_over: bool,
}

impl Group {
    /// Kills every process of the group. Nobody has waited for the leader yet, so the number is
    /// still its own.
    fn kill(&mut self) {
        if !self.is_over {
            // It fails only when no process is left.
            let _ = signal_group(self.child.id(), Signal::Kill);
        }
    }

    /// Waits this long, then kills what is left. Returns the exit status and the message; `None`:
    /// it had not ended in time, although it was given some.
    fn end(&mut self, within: Duration) -> Option<(ExitStatus, String)> {
        let until = Instant::now() + within;
        let id = self.child.id();
        // The leader is reaped only after the whole group is killed: until then the group's number
        // is its own.
        while !has_ended(id).unwrap_or(true) && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
        let is_in_time = has_ended(id).unwrap_or(true);
        self.kill();
        self.is_over = true;
        let status = self.child.wait().ok();
        let complaint =
            self.complaint.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        status.filter(|_| is_in_time || within.is_zero()).map(|status| (status, complaint))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.end(Duration::ZERO);
        }
    }
}
