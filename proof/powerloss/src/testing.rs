//! [`test()`]: the lab of any writer and reader inside a `#[test]`.
//!
//! *Owns*: starting the test again as a writer and as a reader, the choice between a power cut and
//! a kill, the verdict. *May not touch*: crashing and judging ([`crate::any`]).

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use inkstone_host::WorkDir;
use inkstone_subject::lines::Promise;
use inkstone_subject::lines::past::Past;

use crate::any::{self, AnyOptions, Enough, Shell, Start, quoted};
use crate::campaign::Campaign;
use crate::kernel::machine::{FsKind, missing};
use crate::medium::RunError;
use crate::process::{Program, Within};

/// Set in a process that is a writer or a reader, to which of the two; and its directory.
const ROLE: &str = "INKSTONE_POWERLOSS_ROLE";
const DIRECTORY: &str = "INKSTONE_POWERLOSS_DIRECTORY";
/// How such a process ends when it has done its part. One in which no test ran ends with 0.
const PLAYED: i32 = 17;
/// Where its lines go: what runs the tests prints on stdout, too.
const LINES: &str = "/dev/fd/3";

const KINDS: [FsKind; 3] = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];
/// Writers under each of them, and how many states of each writer are mounted.
const CUT_ROUNDS: u64 = 3;
const STATES: usize = 16;
const KILLED_ROUNDS: u64 = 20;
const LINES_MAX: u32 = 40;
const LIMIT: Duration = Duration::from_secs(30);

/// Where a writer and a reader say their lines.
#[derive(Debug)]
pub struct Lines(File);

impl Lines {
    /// Says a line. Of a writer: this item is durable now. Of a reader: this item is there.
    ///
    /// # Errors
    /// It is more than one line, or nobody listens any more.
    pub fn say(&mut self, line: impl Display) -> io::Result<()> {
        let mut line = line.to_string();
        if line.contains('\n') {
            let why = format!("{line:?} is more than one line");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        line.push('\n');
        self.0.write_all(line.as_bytes())
    }
}

/// How the writers were crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The power was cut under file systems of the kernel.
    PowerCut,
    /// The processes were killed, and nothing else: the page cache survives, so a missing sync is
    /// not found.
    Kill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// What was acknowledged or shown was found after each crash.
    Survived,
    /// Something was not, or it could not be read, or the writer could not go on.
    Lost,
    /// Nothing was acknowledged, or the machine lacks something.
    NotMeasured,
    /// The writer or the reader does not do what it must.
    HarnessBroken,
}

/// What [`test()`] has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it says whether anything was lost"]
pub struct Report {
    pub crash: Crash,
    pub verdict: Verdict,
    /// All of it in words: what was crashed how often, what was lost, what is missing.
    pub words: String,
}

impl Report {
    /// # Panics
    /// Unless everything survived.
    #[track_caller]
    pub fn expect_survived(&self) {
        assert!(self.verdict == Verdict::Survived, "{self}");
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.verdict, self.words)
    }
}

/// What a writer or a reader returns.
pub type Played = Result<(), Box<dyn Error>>;

/// Crashes `writer` again and again, and compares what `reader` finds with what the writer said.
/// The module [`any`] has the rules of both. With root, `/dev/fuse`, loop devices and a mkfs the
/// power is cut under ext4, xfs and btrfs; elsewhere the writer is killed. The report says which,
/// also on stderr.
///
/// A writer that can be killed is a process of its own, and so is a reader: it is this test again.
/// So a test has one such call, on its own thread, and what stands before it runs in them, too.
pub fn test(
    writer: impl FnOnce(&Path, &mut Lines) -> Played,
    reader: impl FnOnce(&Path, &mut Lines) -> Played,
) -> Report {
    match std::env::var(ROLE).as_deref() {
        Ok("writer") => play(writer),
        Ok(_) => play(reader),
        Err(_) => {}
    }
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    let report = report(name);
    // Nobody sees the captured output of a test that passes. That no power was cut must be seen.
    let _ = writeln!(io::stderr(), "powerloss: {name}: {report}");
    report
}

/// Does its part and ends the process.
fn play(part: impl FnOnce(&Path, &mut Lines) -> Played) -> ! {
    let played = || -> Played {
        let directory = std::env::var_os(DIRECTORY).ok_or("no directory was given")?;
        let lines = File::options().write(true).open(LINES);
        let mut lines = Lines(lines.map_err(|error| format!("{LINES}: {error}"))?);
        part(&PathBuf::from(directory), &mut lines)
    };
    if let Err(error) = played() {
        let _ = writeln!(io::stderr(), "{error}");
        std::process::exit(1);
    }
    std::process::exit(PLAYED)
}

/// The command that is this test again.
fn again(role: &str, name: &str) -> Result<Shell, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let program = program.to_str().ok_or("the path of this program is no text")?;
    let [program, test] = [program, name].map(quoted);
    let command = format!(
        "{ROLE}={role} {DIRECTORY}={{dir}} \
         {program} {test} --exact --include-ignored --nocapture 3>&1 >/dev/null; \
         case $? in {PLAYED}) exit 0;; 0) echo no test ran: call it on the thread of one >&2;; \
         esac; exit 1"
    );
    Ok(Shell { label: format!("the {role} of {name}"), command, at_work: None })
}

fn report(name: &str) -> Report {
    let mut kinds: Vec<_> = KINDS.into_iter().filter(|it| it.missing().is_none()).collect();
    let lack = missing().or_else(|| kinds.is_empty().then(|| "no mkfs is installed".into()));
    let mut crash = Crash::PowerCut;
    if lack.is_some() {
        (kinds, crash) = (Vec::new(), Crash::Kill);
    }
    let (verdict, mut words) = match crashed(name, &kinds) {
        Ok(found) => found,
        Err(RunError::Command(why)) => (Verdict::HarnessBroken, why),
        Err(RunError::Nothing(why) | RunError::Other(why)) => (Verdict::NotMeasured, why),
    };
    if let (Verdict::Survived, Some(lack)) = (verdict, lack) {
        words += &format!("; the power was NOT cut, so a missing sync is not found: {lack}");
    }
    Report { crash, verdict, words }
}

/// Under each of these file systems; none: by kills.
fn crashed(name: &str, kinds: &[FsKind]) -> Result<(Verdict, String), RunError> {
    check_single(name)?;
    let parent = std::env::temp_dir();
    let (writer, reader) = (again("writer", name)?, again("reader", name)?);
    check_empty(&reader, &parent)?;
    let (rounds, crash) = match kinds {
        [] => (KILLED_ROUNDS, "kill"),
        _ => (CUT_ROUNDS, "power cut"),
    };
    let (lines_max, limit, states) = (LINES_MAX, LIMIT, STATES);
    let (promise, start) = (Promise::Order, Start::Tested);
    let (enough, disk_bytes) = (Enough::Rounds(rounds), None);
    let options =
        AnyOptions { writer, reader, promise, start, enough, lines_max, limit, states, disk_bytes };
    let mut campaign = Campaign {
        kinds: Vec::new(),
        seed: 1,
        parent,
        keep_in: None,
        program: Program { path: PathBuf::new(), arguments: Vec::new() },
        command: name.to_owned(),
        mistake: None,
    };
    let (mut count, mut lines, mut places) = (0, 0, Vec::new());
    for number in 0..kinds.len().max(1) {
        campaign.kinds = kinds.get(number).copied().into_iter().collect();
        let result = any::run(&options, &campaign, &AtomicBool::new(false), &mut |_| {})?;
        if let Some(violation) = result.violations.first() {
            let (place, what) = (result.file_system, &violation.what);
            let cause: String = result.cause.iter().map(|it| format!("\n  cause: {it}")).collect();
            return Ok((Verdict::Lost, format!("after a {crash} on {place}, {what}{cause}")));
        }
        count += result.states();
        lines += result.counts.of(any::ACKNOWLEDGED);
        places.push(result.file_system);
    }
    let places = places.join(", ");
    let words = format!("{count} {crash}s on {places}, {lines} lines acknowledged");
    Ok((Verdict::Survived, words))
}

/// A second call would be the first one in the processes that it starts.
fn check_single(name: &str) -> Result<(), RunError> {
    static CALLED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut called = CALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if called.iter().any(|known| known == name) {
        return Err(RunError::Command(format!("{name} has a second call: make two tests of it")));
    }
    called.push(name.to_owned());
    Ok(())
}

/// A reader that fails where nothing is, or finds something there, says nothing of a crash.
fn check_empty(reader: &Shell, parent: &Path) -> Result<(), RunError> {
    let made = WorkDir::create(parent).map_err(|error| error.to_string())?;
    let empty = made.path().join("empty");
    std::fs::create_dir(&empty).map_err(|error| format!("{}: {error}", empty.display()))?;
    let within = Within { limit: LIMIT, stop: &AtomicBool::new(false) };
    let shown = reader.read(&empty, within, &Past::default())?;
    let what = match (&shown.failed, shown.lines().len()) {
        (None, 0) => return Ok(()),
        (None, lines) => format!("finds {lines} lines"),
        (Some(why), _) => format!("fails: {why}"),
    };
    Err(RunError::Command(format!("{} {what} in an empty directory", reader.label)))
}

/// What it finds is in examples/tested-queue.
#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &Path, _: &mut Lines) -> Played {
        Ok(())
    }

    fn fails(_: &Path, _: &mut Lines) -> Played {
        Err("it has its reasons".into())
    }

    fn is(report: &Report, verdict: Verdict, words: &str) {
        assert!(report.verdict == verdict && report.words.contains(words), "{report}");
    }

    #[test]
    fn who_acknowledges_nothing_is_not_measured() {
        is(&test(nothing, nothing), Verdict::NotMeasured, "acknowledged no line");
    }

    #[test]
    fn a_writer_that_fails_at_once_is_broken() {
        is(&test(fails, nothing), Verdict::HarnessBroken, "it has its reasons");
    }

    #[test]
    fn a_reader_that_fails_where_nothing_is_is_broken() {
        is(&test(nothing, fails), Verdict::HarnessBroken, "it has its reasons");
    }

    #[test]
    fn a_reader_that_finds_something_where_nothing_is_is_broken() {
        let finds = |_: &Path, lines: &mut Lines| Ok(lines.say("a line")?);
        is(&test(nothing, finds), Verdict::HarnessBroken, "finds 1 lines in an empty directory");
    }

    #[test]
    fn a_second_call_is_refused() {
        let _ = test(nothing, nothing);
        is(&test(nothing, nothing), Verdict::HarnessBroken, "make two tests of it");
    }

    #[test]
    fn a_call_on_a_thread_without_a_test_is_refused() {
        let called = std::thread::spawn(|| test(nothing, nothing)).join();
        is(&called.expect("a report"), Verdict::HarnessBroken, "no test ran");
    }
}
