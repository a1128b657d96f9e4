//! `inkstone lab published`: every published table at its own size, one after the other, into a directory.
//!
//! *Owns*: the order of parts, which of them are done, the messages before and after. *May not touch*: how a part measures: each is
//! a command that a person could type.
//!
//! A part is done once its result has its final name. Until then the result has another name, so a kill at any time leaves either a
//! whole result or none. The next start continues with the first part that has none.

mod effort;
mod parts;
mod summary;
mod whole;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, FromArgMatches as _};
use inkstone_lab::claims::{Answer, ClaimsResult};
use inkstone_lab::export::from_json;
use inkstone_lab::result::LabResult;

use self::effort::{Effort, human_bytes, human_s};
pub(crate) use self::parts::{PARTS, Part};
use self::summary::Seen;
use self::whole::Here;
use super::LabArguments;

const EXAMPLES: &str = "\
Examples:
  inkstone lab published results --list    the parts, and about how long and how much space each takes
  sudo inkstone lab published results      takes hours; stop it at any time, and continue with the same command
  sudo inkstone lab published results --only e5,e7
  sudo inkstone lab published try --small  the same commands at small sizes: seconds

Each part leaves NAME.json, and the last step writes table.md. To run a part again, remove its NAME.json. The figures of a part
that a signal ended are in NAME.interrupted.json, those of a part that lacks something in NAME.incomplete.json; both parts run again.
Exits with 1 if a part could not run, with 130 if a signal ended it.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PublishedArguments {
    /// Directory for the results; created if it is missing
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// Directory on the disk to measure [default: the current one]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Run only these parts
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = part)]
    only: Vec<&'static Part>,
    /// Run all parts except these
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = part, conflicts_with = "only")]
    skip: Vec<&'static Part>,
    /// List the parts and run none
    #[arg(long)]
    list: bool,
    /// Run the same commands at sizes that take seconds, to try it out
    #[arg(long)]
    small: bool,
    /// Print no tables and no progress of the parts, only when each starts and ends
    #[arg(long)]
    quiet: bool,
}

fn part(text: &str) -> Result<&'static Part, String> {
    let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
    let known = PARTS.iter().find(|part| part.name == text);
    known.ok_or_else(|| format!("{text:?} is no part; the parts are {}", names.join(", ")))
}

/// What an earlier start has left of a part.
enum Known {
    Whole(Box<LabResult>),
    /// Its result lacks something that the command was to measure.
    Lacks(String),
    Nothing,
}

/// How a part ended.
#[derive(Debug)]
enum Done {
    Before(Box<LabResult>),
    Now(Box<LabResult>),
    Not(String),
}

impl PublishedArguments {
    fn parts(&self) -> impl Iterator<Item = &'static Part> {
        let named = |list: &[&Part], part: &Part| list.iter().any(|named| named.name == part.name);
        PARTS.iter().filter(move |part| match self.only.as_slice() {
            [] => !named(&self.skip, part),
            only => named(only, part),
        })
    }

    /// Runs the parts that are not done yet.
    pub(super) fn run(&self, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
        let directory = self.directory.clone().unwrap_or_else(|| PathBuf::from("."));
        ensure!(directory.is_dir(), "there is no directory {}", directory.display());
        if !self.list {
            fs::create_dir_all(&self.results)
                .with_context(|| format!("create directory {}", self.results.display()))?;
        }
        // Locks the directory itself: no lock file stays behind, and a killed process releases its lock.
        let lock = (!self.list).then(|| fs::File::open(&self.results)).transpose()?;
        if let Some(lock) = &lock
            && lock.try_lock().is_err()
        {
            bail!("another `inkstone lab published` is running in {}", self.results.display());
        }
        let commit_s = if self.small { 0.0 } else { effort::commit_s(&directory)? };
        let here = Here::of(&directory)?;
        self.check_same_disk(&here, &directory)?;
        let open = self.announce(commit_s, &here)?;
        if self.list {
            return Ok(ExitCode::SUCCESS);
        }
        let mut found = Vec::new();
        for part in self.parts() {
            if stop.load(Ordering::Relaxed) {
                return Ok(ExitCode::from(130));
            }
            let done = match (self.known(part), here.refuses(part, self.small)?) {
                (Known::Whole(result), _) => Done::Before(result),
                (_, Some(why)) => Done::Not(why),
                (_, None) => {
                    self.check_writable()?;
                    let at = open.iter().position(|name| *name == part.name).map_or(0, |at| at + 1);
                    say!("[{at}/{}] {}: {}", open.len(), part.name, part.line(self.small));
                    match self.one(part, &directory, stop) {
                        Ok(result) if result.preamble.interrupted => return Ok(ExitCode::from(130)),
                        Ok(result) => Done::Now(Box::new(result)),
                        Err(error) => Done::Not(format!("{error:#}")),
                    }
                }
            };
            match &done {
                Done::Not(why) => say!("{}: not done: {why}", part.name),
                Done::Now(result) => {
                    say!("{}: done in {}", part.name, human_s(result.preamble.elapsed_ns as f64 / 1e9))
                }
                Done::Before(_) => {}
            }
            found.push((part, done));
        }
        self.sum_up(&found)
    }

    /// Checks that results can be written, before a part runs for hours.
    fn check_writable(&self) -> anyhow::Result<()> {
        const ROOM_BYTES: usize = 4 << 20;
        let path = self.results.join("room.part");
        let written = fs::File::create(&path).and_then(|mut file| {
            file.write_all(&vec![0; ROOM_BYTES])?;
            file.sync_all()
        });
        // What a failed write has left takes room as well.
        let removed = fs::remove_file(&path);
        written.and(removed).with_context(|| {
            format!(
                "cannot write results to {}, so no part was started: free some space or create the directory again, then run \
                 the same command",
                self.results.display()
            )
        })
    }

    /// Refuses to mix results of two disks or two machines in one table.
    fn check_same_disk(&self, here: &Here, directory: &Path) -> anyhow::Result<()> {
        for part in self.parts() {
            if let Known::Whole(result) = self.known(part)
                && let Some(what) = here.is_not_of(&result)
            {
                bail!(
                    "{} was measured on {what}: name another RESULTS directory for {}, or the DIR that these results come from",
                    self.path(part).display(),
                    directory.display()
                );
            }
        }
        Ok(())
    }

    /// Prints which parts are done and what the others take; returns the names of the others.
    fn announce(&self, commit_s: f64, here: &Here) -> anyhow::Result<Vec<&'static str>> {
        let mut open = Vec::new();
        let mut sum = Effort::default();
        if !self.small {
            say!(
                "A durable commit of 4 KiB takes {:.0} us here. The times below are rough estimates from it.",
                commit_s * 1e6
            );
        }
        for part in self.parts() {
            let again = match self.known(part) {
                Known::Whole(_) => {
                    say!("  {:<12} already done ({})", part.name, self.path(part).display());
                    continue;
                }
                Known::Lacks(what) => format!("; runs again, because its result is incomplete ({what})"),
                Known::Nothing => String::new(),
            };
            if let Some(why) = here.refuses(part, self.small)? {
                say!("  {:<12} cannot be done: {why}", part.name);
                continue;
            }
            open.push(part.name);
            let takes = if self.small {
                "seconds".into()
            } else {
                let effort = Effort::of(&parse(&part.words(false))?, commit_s)?;
                sum.seconds += effort.seconds;
                sum.bytes = sum.bytes.max(effort.bytes);
                format!("about {}, {} of disk", human_s(effort.seconds), human_bytes(effort.bytes))
            };
            let root = if part.needs_root { ", root" } else { "" };
            say!("  {:<12} {takes}{root}: {}{again}", part.name, part.line(self.small));
        }
        if !self.small && !open.is_empty() {
            say!(
                "Together about {}, and at most {} of disk at a time.",
                human_s(sum.seconds),
                human_bytes(sum.bytes)
            );
        }
        Ok(open)
    }

    fn path(&self, part: &Part) -> PathBuf {
        self.results.join(format!("{}.json", part.name))
    }

    /// The name of an incomplete result, which never counts as done.
    fn beside(&self, part: &Part, state: &str) -> PathBuf {
        self.results.join(format!("{}.{state}.json", part.name))
    }

    /// The result of a part, if the same command made it.
    fn known(&self, part: &Part) -> Known {
        let text = fs::read_to_string(self.path(part)).ok();
        let result = text.and_then(|text| from_json(&text).ok());
        match result
            .filter(|found| !found.preamble.interrupted && found.preamble.command == part.line(self.small))
        {
            None => Known::Nothing,
            Some(result) => match whole::missing(&result) {
                Some(what) => Known::Lacks(what),
                None => Known::Whole(Box::new(result)),
            },
        }
    }

    fn one(&self, part: &Part, directory: &Path, stop: &AtomicBool) -> anyhow::Result<LabResult> {
        // The directory comes last: every subcommand takes it there.
        let (path, raw) = (self.path(part), self.results.join(format!("{}.part", part.name)));
        let named = [raw.display().to_string(), directory.display().to_string()];
        let mut words = part.words(self.small);
        words.extend(["--json", named[0].as_str()]);
        if self.quiet {
            words.push("--quiet");
            // `lab claims` has no such option: its table is its answer.
            if !part.name.starts_with("claims") {
                words.push("--no-table");
            }
        }
        words.push(named[1].as_str());
        let code = super::lab(&parse(&words)?, stop)?;
        let text = fs::read_to_string(&raw).with_context(|| format!("read {}", raw.display()))?;
        let mut whole: serde_json::Value = serde_json::from_str(&text)?;
        let mut result = from_json(&text)?;
        if result.preamble.interrupted {
            let kept = self.beside(part, "interrupted");
            fs::rename(&raw, &kept).with_context(|| format!("rename {}", raw.display()))?;
            say!("{}: interrupted; what was measured is in {}", part.name, kept.display());
            return Ok(result);
        }
        // Code 2 means lost output, which the end of the program reports.
        ensure!(
            code != ExitCode::FAILURE,
            "nothing could be measured, or the disk filled up: see {}",
            raw.display()
        );
        if let Some(what) = whole::missing(&result) {
            let kept = self.beside(part, "incomplete");
            fs::rename(&raw, &kept).with_context(|| format!("rename {}", raw.display()))?;
            bail!("{what} (what was measured is in {})", kept.display());
        }
        result.preamble.command = part.line(self.small);
        whole["command"] = result.preamble.command.clone().into();
        write_whole(&path, &raw, &(serde_json::to_string(&whole)? + "\n"))?;
        // Earlier incomplete results are of no more use.
        for state in ["interrupted", "incomplete"] {
            let _ = fs::remove_file(self.beside(part, state));
        }
        Ok(result)
    }

    /// The answers of a part that checks claims.
    fn claims(&self, part: &Part) -> Vec<Answer> {
        let text = fs::read_to_string(self.path(part)).unwrap_or_default();
        serde_json::from_str::<ClaimsResult>(&text).map(|found| found.claims).unwrap_or_default()
    }

    fn sum_up(&self, found: &[(&'static Part, Done)]) -> anyhow::Result<ExitCode> {
        let measured = found.iter().filter_map(|(part, done)| match done {
            Done::Before(result) | Done::Now(result) => {
                Some(Seen { part, result, claims: self.claims(part) })
            }
            Done::Not(_) => None,
        });
        let table = self.results.join("table.md");
        let text = summary::table(&measured.collect::<Vec<_>>(), self.small);
        write_whole(&table, &self.results.join("table.part"), &text)?;
        let missing: Vec<&str> = found
            .iter()
            .filter(|(_, done)| matches!(done, Done::Not(_)))
            .map(|(part, _)| part.name)
            .collect();
        say!("{} of {} parts are done: {}", found.len() - missing.len(), found.len(), table.display());
        if missing.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        say!("Not done: {} (the reasons are above; the same command tries them again)", missing.join(", "));
        Ok(ExitCode::FAILURE)
    }
}

/// Renames the file to its own name only after all of it is on the disk.
fn write_whole(path: &Path, beside: &Path, text: &str) -> anyhow::Result<()> {
    let written = || format!("write {}", path.display());
    fs::write(beside, text).with_context(written)?;
    fs::File::open(beside).and_then(|file| file.sync_all()).with_context(written)?;
    fs::rename(beside, path).with_context(written)
}

/// Parses these words as arguments of `inkstone lab`.
pub(super) fn parse(words: &[&str]) -> anyhow::Result<LabArguments> {
    let definition = LabArguments::augment_args(clap::Command::new("lab"));
    let all = std::iter::once("lab").chain(words.iter().copied());
    let matches = definition.try_get_matches_from(all)?;
    Ok(LabArguments::from_arg_matches(&matches)?)
}
