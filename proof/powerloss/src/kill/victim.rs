//! The writer's process: started, read from, stopped, killed at its moment.
//!
//! *Owns*: the process, which never outlives its owner here, and the moment of the kill. *May not
//! touch*: what the log holds afterwards (`witness.rs`).

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use inkstone::{Error, Log, Options, Reader};
use inkstone_host::{Signal, signal_process};

use super::plan::{Manner, Round, Trigger};
use super::told::{Report, Told};

/// How long a writer may be silent. It waits for a disk that others use too.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// How the writer is started: a program that calls [`super::write`] with the directory and the
/// round that follow.
#[derive(Debug, Clone)]
pub struct WriterCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; the log's directory and the round's number follow them.
    pub arguments: Vec<String>,
}

/// How a writer ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) report: Report,
    /// From its start until it reported that the log was open.
    pub(super) opening: Option<Duration>,
    /// A second opening was tried and refused as it must be.
    pub(super) was_refused: bool,
    /// A promise that the log of a stopped writer broke for other processes.
    pub(super) broken: Option<String>,
    /// The kill came in time: it had not ended by itself.
    pub(super) was_killed: bool,
}

/// A child that is killed when it is dropped.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        // Both fail only if it has ended and was reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the round's writer, kills it as planned, and returns what it has reported.
///
/// # Errors
/// It could not be started, was silent for too long, or failed by itself.
pub(super) fn run(
    command: &WriterCommand,
    path: &Path,
    round: &Round,
    opening: Duration,
) -> Result<Ended, String> {
    let began = Instant::now();
    let mut victim = start(command, path, round)?;
    let out = victim.0.stdout.take().ok_or("the writer has no pipe")?;
    let (tell, heard) = channel();
    let number = round.number;
    let listener = std::thread::spawn(move || listen(out, number, &tell));
    let opened = await_trigger(&heard, round, began)?;
    let delay = match round.trigger {
        Trigger::Start => opening.mul_f64(round.delay as f64 / 1000.0),
        _ => Duration::from_micros(round.delay),
    };
    std::thread::sleep(delay);
    let beside = end(&victim, path, round)?;
    let kill = victim.0.kill();
    let status = victim.0.wait().map_err(|error| format!("wait for the writer: {error}"))?;
    kill.map_err(|error| format!("kill the writer: {error}"))?;
    let mut report = listener.join().map_err(|_| "the thread that listens panicked".to_owned())?;
    let was_killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    if let Some(why) = report.failed.take() {
        return Err(format!("the writer of round {number} failed: {why}"));
    }
    if !was_killed && !report.is_closed {
        return Err(format!("the writer of round {number} ended by itself: {status}"));
    }
    let Beside { was_refused, durable, broken } = beside;
    report.durable = report.durable.max(durable);
    Ok(Ended { report, opening: opened, was_refused, broken, was_killed })
}

fn start(command: &WriterCommand, path: &Path, round: &Round) -> Result<Victim, String> {
    Command::new(&command.program)
        .args(&command.arguments)
        .arg(path)
        .arg(round.number.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map(Victim)
        .map_err(|error| format!("start the writer {}: {error}", command.program.display()))
}

/// An event that the kill may wait for.
enum Mark {
    Open,
    Acknowledged,
    Closing,
}

fn listen(out: ChildStdout, round: u32, tell: &Sender<Mark>) -> Report {
    let mut report = Report::default();
    for line in BufReader::new(out).lines() {
        let Some(told) = line.ok().as_deref().and_then(Told::parse) else {
            report.failed = Some("it wrote a line that no writer writes".into());
            continue;
        };
        report.add(round, &told);
        let mark = match told {
            Told::Open => Mark::Open,
            Told::Acknowledged { .. } | Told::Synced { .. } => Mark::Acknowledged,
            Told::Closing => Mark::Closing,
            _ => continue,
        };
        // The receiver may have stopped waiting.
        let _ = tell.send(mark);
    }
    report
}

/// Waits for the event that starts the kill's clock; returns how long the opening took, if it was
/// seen.
fn await_trigger(
    heard: &Receiver<Mark>,
    round: &Round,
    began: Instant,
) -> Result<Option<Duration>, String> {
    let (mut opened, mut acknowledged) = (None, 0);
    loop {
        let is_reached = match round.trigger {
            Trigger::Start => true,
            Trigger::Open => opened.is_some(),
            Trigger::Acknowledgements(count) => acknowledged >= count,
            Trigger::Closing => false,
        };
        if is_reached {
            return Ok(opened);
        }
        match heard.recv_timeout(SILENT_FOR) {
            Ok(Mark::Open) => opened = Some(began.elapsed()),
            Ok(Mark::Acknowledged) => acknowledged += 1,
            Ok(Mark::Closing) => return Ok(opened),
            // It has ended; its lines say why.
            Err(RecvTimeoutError::Disconnected) => return Ok(opened),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!(
                    "the writer of round {} hangs: no line for {} s",
                    round.number,
                    SILENT_FOR.as_secs()
                ));
            }
        }
    }
}

#[derive(Default)]
struct Beside {
    was_refused: bool,
    /// The durable LSN that a reader beside the stopped writer saw.
    durable: u64,
    broken: Option<String>,
}

/// Everything before the kill itself.
fn end(victim: &Victim, path: &Path, round: &Round) -> Result<Beside, String> {
    let signal = |signal| signal_process(victim.0.id(), signal).map_err(|error| error.to_string());
    match round.manner {
        Manner::Kill => Ok(Beside::default()),
        Manner::Stop => {
            signal(Signal::Stop)?;
            Ok(beside(path, round, victim.0.id()))
        }
        Manner::StopAndGoOn(time) => {
            signal(Signal::Stop)?;
            let beside = beside(path, round, victim.0.id());
            signal(Signal::Continue)?;
            std::thread::sleep(time);
            Ok(beside)
        }
    }
}

/// What other processes see of the log of a stopped writer: a second writer gets an error that
/// names the first, a reader reads.
fn beside(path: &Path, round: &Round, writer: u32) -> Beside {
    let options: Options = round.options(None);
    let broken = match Log::open(path, options.clone()) {
        Ok(_) => Some("a second writer could open the log".to_owned()),
        Err(Error::Locked { holder, .. }) if holder.contains(&writer.to_string()) => None,
        Err(error) => Some(format!("a second writer was refused with the wrong message: {error}")),
    };
    let mut beside = Beside { was_refused: broken.is_none(), durable: 0, broken };
    match Reader::open(path, &options) {
        Ok(reader) => beside.durable = reader.durable().get(),
        Err(error) => {
            beside
                .broken
                .get_or_insert(format!("a reader beside the stopped writer failed: {error}"));
        }
    }
    beside
}
