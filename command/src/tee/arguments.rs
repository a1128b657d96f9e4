//! The arguments of `inkstone tee`.
//!
//! *Owns*: the arguments, and opening the log by them. *May not touch*: reading and ending (`run`).

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use inkstone_appender::{
    Builder, Compression, Event, Guard, Keep, LogWriter, Rotation, Survive, WhenFull,
};

use super::words::{say, say_event};
use crate::parse::{duration, size};
use crate::place;

const EXAMPLES: &str = "\
Examples:
  service 2>&1 | inkstone tee app.log --rotate-size 64MiB --keep-files 10
  service | inkstone tee service.log --rotate-every day --keep-days 30
  service | inkstone tee service.log --rotate-size 1GiB --compress gzip --survive kill
  service | inkstone tee service.log --stamp
  service | inkstone tee service.log --drop-after 0s   never stops the service
  service | inkstone tee service.log --pid-file /run/service-log.pid
  kill -HUP $(cat /run/service-log.pid)     opens the file again after logrotate has moved it

SIGHUP ends every other inkstone command: send it to this one process, never by the \
program's name.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TeeArguments {
    /// The log file; its directory is created if it is missing, those above it are not
    #[arg(required_unless_present = "recover")]
    file: Option<PathBuf>,
    /// Start a new file before the current one would exceed this; at least 16KiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    rotate_size: Option<u64>,
    /// Start a new file at each multiple of this, in UTC: minute, hour, day, or 15m
    #[arg(long, value_name = "TIME", value_parser = period)]
    rotate_every: Option<Duration>,
    /// Keep this many rotated files
    #[arg(long, value_name = "N")]
    keep_files: Option<usize>,
    /// Keep rotated files for this many days
    #[arg(long, value_name = "N")]
    keep_days: Option<u32>,
    /// Compress rotated files
    #[arg(long, value_name = "HOW", value_parser = one_of(COMPRESSIONS))]
    compress: Option<Compression>,
    /// When every buffer is full because the disk is too slow, drop a line after it has waited this
    /// long; 0s drops it at once [default: it waits until there is room]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    drop_after: Option<Duration>,
    /// What lines survive: nothing but a clean end, a kill of this process, or also a power loss;
    /// with an exclamation mark, the log is refused where it cannot be so
    #[arg(long, value_name = "WHAT", default_value = "nothing", value_parser = one_of(SURVIVES))]
    survive: (Survive, bool),
    /// Directory in memory (tmpfs) where --survive kill and power-loss keep what is not written yet
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    stage_directory: PathBuf,
    /// List the lines of killed processes that wait in memory, whose they are and in which stage;
    /// or print those of this stage on stdout, and remove it. No log is written
    #[arg(long, value_name = "STAGE", num_args = 0..=1, conflicts_with = "file")]
    recover: Option<Option<PathBuf>>,
    /// How often --survive power-loss syncs the file
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    sync_every: Duration,
    /// Size of all buffers together; at least 8KiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = size)]
    buffers: u64,
    /// Write a line to the file after at most this long
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration)]
    flush_every: Duration,
    /// Put before each line the time at which its first byte was read, as
    /// 2026-11-21T16:05:33.123456Z
    #[arg(long)]
    pub(super) stamp: bool,
    /// Also write every line to stdout; if its reader is too slow or leaves, lines are missing
    /// there, never in the log
    #[arg(long)]
    pub(super) echo: bool,
    /// After the first SIGTERM or SIGINT: time to read the last lines of the service, to retry a
    /// failing disk and to wait for a slow echo, all together; at the end of stdin: time to retry a
    /// failing disk
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = duration)]
    pub(super) grace: Duration,
    /// Write the number of this process to a file, for kill -HUP (also under nohup); removed at the
    /// end
    #[arg(long, value_name = "FILE")]
    pub(super) pid_file: Option<PathBuf>,
}

const COMPRESSIONS: &[(&str, Compression)] = &[("gzip", Compression::Gzip)];
/// `--sync-every` has the time of the last two.
const SURVIVES: &[(&str, (Survive, bool))] = &[
    ("nothing", (Survive::Nothing, false)),
    ("kill", (Survive::Kill, false)),
    ("kill!", (Survive::Kill, true)),
    ("power-loss", (Survive::PowerLoss(Duration::ZERO), false)),
    ("power-loss!", (Survive::PowerLoss(Duration::ZERO), true)),
];

/// Takes one of these words for its value.
fn one_of<T: Clone + Send + Sync + 'static>(
    words: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words.iter().map(|(word, _)| *word)).map(move |given| {
        let found = words.iter().find(|(word, _)| *word == given);
        found.expect("the parser takes no other").1.clone()
    })
}

fn period(text: &str) -> Result<Duration, String> {
    let seconds = match text {
        "minute" => 60,
        "hour" => 3600,
        "day" => 86_400,
        other => match duration(other)? {
            short if short < Duration::from_secs(1) => return Err("take at least 1s".into()),
            long => return Ok(long),
        },
    };
    Ok(Duration::from_secs(seconds))
}

impl TeeArguments {
    fn builder(&self) -> anyhow::Result<Builder> {
        let rotation = Rotation::new();
        let rotation = self.rotate_size.map_or(rotation, |bytes| rotation.at_bytes(bytes));
        let rotation = self.rotate_every.map_or(rotation, |every| rotation.every(every));
        let keep = Keep::new();
        let keep = self.keep_files.map_or(keep, |files| keep.files(files));
        let keep = self.keep_days.map_or(keep, |days| keep.days(days));
        if keep != Keep::new() && rotation == Rotation::new() {
            say("no file is rotated, so none is removed: add --rotate-size or --rotate-every");
        }
        let when_full = self.drop_after.map_or(WhenFull::Block, WhenFull::DropAfter);
        let survive = match self.survive() {
            Survive::PowerLoss(_) => Survive::PowerLoss(self.sync_every),
            other => other,
        };
        let mut builder = LogWriter::builder(self.file())
            .buffers_bytes(usize::try_from(self.buffers)?)
            .flush_every(self.flush_every)
            .rotate(rotation)
            .keep(keep)
            .compress(self.compress.unwrap_or_default())
            .when_full(when_full)
            .survive(survive)
            .stage_directory(&self.stage_directory)
            .drain_timeout(self.grace)
            .on_event(|event| match event {
                Event::Rotated { .. } | Event::Recovered(_) => {}
                event => say_event(event),
            });
        if self.survive.1 {
            builder = builder.must_survive();
        }
        Ok(builder)
    }

    pub(super) fn open(&self) -> anyhow::Result<(LogWriter, Guard)> {
        if let Survive::PowerLoss(_) = self.survive() {
            let warnings = place::warnings(&self.directory());
            if let (true, Some(why)) = (self.survive.1, warnings.first()) {
                anyhow::bail!("{why}; --survive power-loss! refuses such a place");
            }
            warnings.iter().for_each(say);
        }
        Ok(self.builder()?.open()?)
    }

    /// The directory of the log, or the one in which it will be made. Behind a link is the one that
    /// matters.
    fn directory(&self) -> PathBuf {
        let file = std::path::absolute(self.file()).unwrap_or_default();
        let real = file.ancestors().find_map(|path| path.canonicalize().ok()).unwrap_or_default();
        if real.is_dir() { real } else { real.parent().map(Path::to_path_buf).unwrap_or_default() }
    }

    /// The log's file; without one nothing but `--recover` is asked.
    pub(super) fn file(&self) -> &Path {
        self.file.as_deref().unwrap_or(Path::new(""))
    }

    pub(super) fn survive(&self) -> Survive {
        self.survive.0
    }

    /// Lists or prints what waits in memory, instead of writing a log; `None` if that is not asked.
    pub(super) fn recover(&self) -> anyhow::Result<Option<()>> {
        let Some(recover) = &self.recover else { return Ok(None) };
        if let Some(stage) = recover {
            let taken = inkstone_appender::take_lines(stage, &mut std::io::stdout().lock())?;
            if let Some(damage) = taken.damage {
                eprintln!("inkstone: {}: {damage}", stage.display());
            }
            return Ok(Some(()));
        }
        let waiting = inkstone_appender::waiting_lines(&self.stage_directory)?;
        let mut text: String = waiting.iter().map(|waiting| format!("{waiting}\n")).collect();
        if text.is_empty() {
            let directory = self.stage_directory.display();
            text = format!("no lines of a killed process of this user wait in {directory}\n");
        }
        crate::stdout::print(&text);
        Ok(Some(()))
    }
}

/// A log that is its own input would grow until the disk is full.
pub(super) fn refuse_own_input(log: &Path) -> anyhow::Result<()> {
    let input = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(File::from)
        .and_then(|file| file.metadata());
    if let (Ok(input), Ok(facts)) = (input, std::fs::metadata(log)) {
        let is_same = (input.dev(), input.ino()) == (facts.dev(), facts.ino());
        anyhow::ensure!(!is_same, "stdin is the log {} itself: name another file", log.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods() {
        assert_eq!(period("day"), Ok(Duration::from_secs(86_400)));
        assert_eq!(period("15m"), Ok(Duration::from_secs(900)));
        assert!(period("10ms").is_err() && period("week").is_err());
    }
}
