//! Starting the process that uses the log, reading its lines, and noticing that it hangs.
//!
//! *Owns*: the process and the clock. *May not touch*: what its lines mean.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::words::{Call, Line};
use super::worker::Use;
use crate::kernel::disk::Disk;
use crate::kernel::record::Program;

/// A call hangs when no line comes for this long: the slowest disk here answers within a second.
const HANGS_AFTER: Duration = Duration::from_secs(45);
/// A killed process may take this long to end, once its disk is sound.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// The process, with all its lines. Dropping it kills it; first make its disk sound.
#[derive(Debug)]
pub struct Watched {
    child: Child,
    heard: Receiver<String>,
    /// Its lines so far.
    pub lines: Vec<Line>,
    outstanding: BTreeMap<u32, (Call, u32)>,
}

impl Watched {
    /// Starts `program` with the directory and how to use the log.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(program: &Program, directory: &Path, usage: &Use) -> Result<Self, String> {
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).arg(directory);
        command.args([
            "--strategy",
            &usage.way.to_string(),
            "--threads",
            &usage.threads.to_string(),
        ]);
        command.args(["--seed", &usage.seed.to_string()]);
        command.args(
            usage.mistake.iter().flat_map(|mistake| ["--mistake".into(), mistake.to_string()]),
        );
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child =
            child.map_err(|error| format!("start {}: {error}", program.path.display()))?;
        let output = child.stdout.take().ok_or("the process that uses the log has no output")?;
        let (sender, heard) = channel();
        // Ends with the process, whose output it reads.
        std::thread::spawn(move || {
            BufReader::new(output)
                .lines()
                .map_while(Result::ok)
                .all(|line| sender.send(line).is_ok())
        });
        Ok(Self { child, heard, lines: Vec::new(), outstanding: BTreeMap::new() })
    }

    /// Reads the next line, and marks on the disk that it was read.
    ///
    /// # Errors
    /// It ended or hangs: in which call.
    pub fn hear(&mut self, disk: &Disk) -> Result<Line, String> {
        let text = match self.heard.recv_timeout(HANGS_AFTER) {
            Ok(text) => text,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(format!("the process ended {}", self.where_it_is()));
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!(
                    "the process hangs: no line for {HANGS_AFTER:?} {}",
                    self.where_it_is()
                ));
            }
        };
        let line = Line::parse(&text)?;
        match line {
            Line::Begin(thread, call, number) => {
                let _ = self.outstanding.insert(thread, (call, number));
            }
            Line::Done(thread, ..) | Line::Failed(thread, ..) => {
                let _ = self.outstanding.remove(&thread);
            }
            Line::Shown(..) | Line::Rests => {}
        }
        self.lines.push(line.clone());
        disk.mark(&self.lines.len().to_string());
        Ok(line)
    }

    fn where_it_is(&self) -> String {
        let calls = self
            .outstanding
            .iter()
            .map(|(thread, (call, number))| format!("thread {thread}: {call} {number}"));
        let calls: Vec<_> = calls.collect();
        if calls.is_empty() {
            "outside any call".into()
        } else {
            format!("within {}", calls.join(", "))
        }
    }

    /// Sends it a word.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, word: &str) -> Result<(), String> {
        let input =
            self.child.stdin.as_mut().ok_or("the process that uses the log has no input")?;
        writeln!(input, "{word}")
            .map_err(|error| format!("the process that uses the log is gone: {error}"))
    }

    /// Kills it. Its disk is sound by now, so nothing holds it in the kernel.
    ///
    /// # Errors
    /// It does not end.
    pub fn kill(mut self) -> Result<(), String> {
        self.end()
    }

    fn end(&mut self) -> Result<(), String> {
        // It fails only when the process has ended by itself.
        let _ = self.child.kill();
        let until = Instant::now() + GONE_WITHIN;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                _ => return Ok(()),
            }
        }
        Err(format!(
            "the killed process still exists after {GONE_WITHIN:?}, on a sound disk {}",
            self.where_it_is()
        ))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
