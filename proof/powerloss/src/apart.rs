//! A command that a lab starts in namespaces of its own, and what is heard of it: that it began,
//! its end, who it has left behind.
//!
//! *Owns*: the lines between the process that starts the command there ([`inside`]) and the lab
//! ([`Apart`]). *May not touch*: what the command does, and what its end means.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use inkstone_host::{Network, Patience, living_beside, seal};

use crate::process::{Heard, Process, Program, whole};

const STARTED: &str = "started";
const NOT_STARTED: &str = "not-started ";
const ENDED: &str = "ended ";
const LEFT: &str = "left ";
/// How long the processes that a command has left behind may go on before they are killed.
const GRACE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How often a wait checks whether it must stop.
const STOPS_WITHIN: Duration = Duration::from_millis(50);
/// The end of all processes takes no longer.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// Where a command runs.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its directory.
    pub directory: PathBuf,
    /// The mount that it may write to; elsewhere only what is below `/tmp` and `/dev`.
    pub open: PathBuf,
    /// What it must not change in any case.
    pub sealed: Option<PathBuf>,
}

/// Process 1 of the namespaces: starts the command, says its end, waits a little for the processes
/// that it has left behind. When this process ends, the kernel kills them. It ends when its stdin
/// does: nobody hears it any more.
pub fn inside(place: &Place, command: &[OsString]) -> Result<(), String> {
    let say = |line: &str| {
        let mut out = std::io::stdout();
        out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush())
    };
    let say = |line: &str| say(line).map_err(|error| format!("nobody listens: {error}"));
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1)
    });
    seal(&place.open, place.sealed.as_deref()).map_err(|error| error.to_string())?;
    let (name, arguments) = command.split_first().ok_or("no command was given")?;
    let mut started = Command::new(name);
    started.args(arguments).current_dir(&place.directory);
    // Its own lines would be taken for ours.
    started.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = match started.spawn() {
        Ok(child) => child,
        Err(error) => return say(&format!("{NOT_STARTED}{error}")),
    };
    say(STARTED)?;
    let status = child.wait().map_err(|error| error.to_string())?;
    say(&format!("{ENDED}{}", status.into_raw()))?;
    let mut patience = Patience::new(GRACE);
    loop {
        let left = living_beside().map_err(|error| error.to_string())?;
        if left.is_empty() {
            return Ok(());
        }
        if !patience.pause(LOOK_EVERY) {
            return say(&format!("{LEFT}{}", left.join(", ")));
        }
    }
}

/// What became of a command.
#[derive(Debug)]
pub enum Ran {
    /// It has ended, with all processes that it has started.
    Ended {
        status: ExitStatus,
        /// The beginning of what it said on stderr.
        complaint: String,
        /// The names of processes that it has left behind, which were killed.
        left: Option<String>,
    },
    /// Why it could not be started.
    NotStarted(String),
    /// It was killed.
    TooSlow,
    /// The lab was stopped.
    Stopped,
}

/// A command in namespaces of its own. Dropping it kills all of them.
#[derive(Debug)]
pub struct Apart {
    process: Process,
}

impl Apart {
    /// Starts it by `program`, which is to call [`inside`] with these arguments.
    pub fn start(program: &Program, place: &Place, command: &[OsString]) -> Result<Self, String> {
        let mut start = Command::new(&program.path);
        start.args(&program.arguments).arg("--open").arg(&place.open);
        if let Some(sealed) = &place.sealed {
            start.arg("--sealed").arg(sealed);
        }
        start.arg(&place.directory).arg("--").args(command);
        start.stdin(Stdio::piped()).stderr(Stdio::piped());
        let process = Process::start_apart(&mut start, Network::Shared, &place.directory);
        Ok(Self { process: process.map_err(|error| error.to_string())? })
    }

    /// Hears it to its end. `ended` is called at the command's own end, when processes of it may
    /// still live.
    pub fn hear(
        mut self,
        limit: Duration,
        stop: &AtomicBool,
        mut ended: impl FnMut(ExitStatus),
    ) -> Result<Ran, String> {
        let (mut patience, mut status, mut left) = (Patience::new(limit), None, None);
        loop {
            let is_over = patience.is_over();
            let line = match self.process.hear(STOPS_WITHIN) {
                Heard::Line(line) => whole(&line).ok_or("a line of it was cut")?,
                Heard::Ended => break,
                Heard::Silent if stop.load(Ordering::Relaxed) => return Ok(Ran::Stopped),
                Heard::Silent if status.is_none() && is_over => return Ok(Ran::TooSlow),
                Heard::Silent => continue,
            };
            if let Some(why) = line.strip_prefix(NOT_STARTED) {
                return Ok(Ran::NotStarted(why.to_owned()));
            } else if let Some(raw) = line.strip_prefix(ENDED) {
                let raw = raw.parse().map_err(|_| format!("{line:?} has no status"))?;
                ended(ExitStatus::from_raw(raw));
                status = Some(ExitStatus::from_raw(raw));
            } else if let Some(names) = line.strip_prefix(LEFT) {
                left = Some(names.to_owned());
            }
        }
        let (_, complaint) = self.process.end(GONE_WITHIN).ok_or("its processes do not end")?;
        match status {
            Some(status) => Ok(Ran::Ended { status, complaint, left }),
            None => Err(format!("the command could not be put apart: {complaint}")),
        }
    }
}

/// Where the command's directory is in its arguments.
const PLACEHOLDER: &str = "{dir}";

/// The command with its directory in it.
pub fn with_directory(command: &[OsString], directory: &Path) -> Vec<OsString> {
    let directory = directory.to_string_lossy();
    let put = |argument: &OsString| match argument.to_str() {
        Some(text) if text.contains(PLACEHOLDER) => text.replace(PLACEHOLDER, &directory).into(),
        _ => argument.clone(),
    };
    command.iter().map(put).collect()
}
