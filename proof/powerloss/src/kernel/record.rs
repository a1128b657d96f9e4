//! Recording: a writer's process on a new file system; each of its steps becomes a mark among what
//! reaches the disk.
//!
//! *Owns*: starting and ending the writer, keeping in step with it. *May not touch*: what it does,
//! how the recording is used.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::disk::Disk;
use super::image::Image;
use super::machine::Machine;
use super::recording::Recording;
use super::spec::Spec;
use super::writer::words;

/// How often a wait checks whether it must stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A step that takes this long hangs: the slowest takes a second.
const HANGS_AFTER: Duration = Duration::from_secs(300);

/// How a writer's process is started: this program with these arguments, then the directory and the
/// words of a [`Spec`].
#[derive(Debug, Clone)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// What comes first.
    pub arguments: Vec<String>,
}

/// The writer's process; dropped, it is killed.
pub(crate) struct Writer {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Whether it had ended or not: now it has.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Writer {
    pub(crate) fn start(
        program: &Program,
        directory: &std::path::Path,
        spec: &impl std::fmt::Display,
    ) -> Result<Self, String> {
        let fail = |error| format!("{}: {error}", program.path.display());
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .arg(directory)
            .arg(spec.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        let output = child.stdout.take().ok_or("the writer has no output")?;
        let (sender, lines) = channel();
        // Ends with the process, whose output it reads.
        std::thread::spawn(move || {
            BufReader::new(output)
                .lines()
                .map_while(Result::ok)
                .all(|line| sender.send(line).is_ok())
        });
        Ok(Self { child, lines })
    }

    pub(crate) fn line(&self, stop: &AtomicBool) -> Result<String, String> {
        let start = Instant::now();
        loop {
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the writer ended without a message".into());
                }
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    return Err("stopped".into());
                }
                Err(RecvTimeoutError::Timeout) if start.elapsed() > HANGS_AFTER => {
                    return Err(format!("the writer hangs: no line for {HANGS_AFTER:?}"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    pub(crate) fn go(&mut self) -> Result<(), String> {
        let input = self.child.stdin.as_mut().ok_or("the writer has no input")?;
        writeln!(input, "{}", words::GO).map_err(|error| format!("the writer has ended: {error}"))
    }
}

/// Records what reaches the disk while a writer does what `spec` says: from mkfs on, so that the
/// recording holds all.
///
/// An error that the writer found is in the recording too, as a mark.
///
/// # Errors
/// The file system could not be made or mounted; the writer ended without a message; `stop` was
/// set.
pub fn record(
    machine: &Machine,
    spec: &Spec,
    program: &Program,
    stop: &AtomicBool,
) -> Result<Recording, String> {
    let disk = Disk::new(spec.kind.to_string().as_str(), Image::new(spec.kind.disk_bytes()));
    disk.record();
    disk.mark(&spec.to_string());
    machine.make(&disk, spec.kind)?;
    let running = machine.boot(&disk, spec.kind)?;
    let mut writer = Writer::start(program, &machine.target().join("log"), spec)?;
    loop {
        let line = writer.line(stop)?;
        disk.mark(&line);
        if line == words::END || line.starts_with(words::FAILED) {
            break;
        }
        writer.go()?;
    }
    let recording = disk.take_recording();
    // It is killed with the log open; the recording ends before that.
    drop(writer);
    running.shut_down()?;
    Ok(recording)
}
