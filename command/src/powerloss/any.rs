//! `inkstone powerloss any`: the crash lab for other programs.
//!
//! *Owns*: its arguments. *May not touch*: starting, crashing, judging.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use inkstone_powerloss::any::{self, AnyOptions, Enough, Shell, Start, WARNING};
use inkstone_powerloss::kernel::machine::FsKind;
use inkstone_powerloss::server::Server;
use inkstone_subject::lines::Promise;

use super::shared::{JsonArgument, campaign, conclude};
use crate::parse::{names, size, some_time};
use crate::stdout::{erase, redraw};

const HELP: &str = "The writer gets a directory: {dir} in its command. It makes one item after \
another durable there. It prints and flushes one line for each item, when and only when the item \
is durable; no two lines are the same. It continues until it is killed. Where an earlier writer \
was killed, it continues after that writer's items.

The reader prints the items that it finds in the directory, as the same lines in the same order, \
and exits with 0. In an empty directory it prints nothing.

After each crash the reader must print every acknowledged item, in order, whole, none twice. Items \
that were in flight may follow. What the reader has printed once must stay.

Other promises (--promise):
  prefix:TIME  the same order; a crash may take the end, of at most this
               time, never the middle
  set          items in any order, from several clients
  map          the same, where an item is KEY VERSION

With set and map a client prints `try ITEM` before it asks for an item, and `ok ITEM` when it is \
acknowledged; the reader prints ITEM. With map one client at a time writes a key, and the version - \
removes it: the reader must find the version that was acknowledged last, or one that was tried \
since.

A server: --start starts a daemon, in the foreground or not, on the directory $DIR; --ready \
succeeds when it can be asked; --client prints the lines of a writer, --reader those of a reader. \
For a reading the daemon is started again on what the crash left; --stop then ends it in order. \
The daemon and the program that talks to it have their own processes, network (a loopback device) \
and /run: use port $PORT, and $RUN for sockets and lock files. All of them are killed at once.

Examples:
  inkstone powerloss any --writer 'examples/any-log/sqlite/writer.sh {dir} wal full' --reader \
'examples/any-log/sqlite/reader.sh {dir}'
  inkstone powerloss any --writer './mine write {dir}' --reader './mine read {dir}' --rounds 1000 \
--json mine.json
  inkstone powerloss any --fs ext4 --promise set --start './mined --data $DIR --port $PORT' \
--ready './mine ping $PORT' --client './client.py write $PORT' --reader './client.py read $PORT'

As root each of them runs in a PID namespace of its own, and all that it has started ends with it. \
Without root SIGKILL goes to its process group, which it must not leave. A kill keeps the page \
cache, so this shows nothing about syncs; --fs does.

Exit code 0: the promise held in every state that was read. 1: it was broken. 2: nothing could be \
tried: a command does not start, fails, or prints no line; or --fs cannot run here.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct AnyArguments {
    /// The writer's shell command, with {dir} for the directory
    #[arg(long, value_name = "COMMAND", required_unless_present = "start")]
    writer: Option<String>,
    /// The reader's shell command, with {dir} for the directory
    #[arg(long, value_name = "COMMAND")]
    reader: String,
    /// What must be there after a crash: order, prefix:TIME, set or map
    #[arg(long, value_name = "PROMISE", default_value = "order", value_parser = promise)]
    promise: Promise,
    /// A server's command, with $DIR for the directory and $PORT for its port (root)
    #[arg(long, value_name = "COMMAND", conflicts_with = "writer")]
    #[arg(requires = "ready", requires = "client")]
    start: Option<String>,
    /// Succeeds when the server can be asked
    #[arg(long, value_name = "COMMAND", requires = "start")]
    ready: Option<String>,
    /// The writer beside the server, which it asks
    #[arg(long, value_name = "COMMAND", requires = "start")]
    client: Option<String>,
    /// Ends the server in order after a reading; without it the server is killed
    #[arg(long, value_name = "COMMAND", requires = "start")]
    stop: Option<String>,
    /// Cut the power from the first line on: what a writer does before it, such as making a new
    /// database, is not tested. With --start it never is
    #[arg(long)]
    skip_start: bool,
    /// Where they work: a new directory is created there, and removed at the end
    #[arg(long = "in", value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// How many writers to start
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "time")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Start writers for this long; the one that writes then is killed
    #[arg(long = "for", id = "time", value_name = "TIME", value_parser = some_time)]
    time: Option<Duration>,
    /// Cut the power under this file system, on a disk in memory (root), instead of only killing
    /// the writer
    #[arg(long = "fs", value_name = "FS", value_parser = names::<FsKind>())]
    kind: Option<FsKind>,
    /// With --fs: crash states for each writer; in half of them a line was just read and nothing
    /// unflushed is kept
    #[arg(long, value_name = "N", default_value_t = 40)]
    states: usize,
    /// With --fs: how large the disk is, if the file system's least size is too small
    #[arg(long = "disk", value_name = "SIZE", value_parser = size)]
    disk_bytes: Option<u64>,
    /// Kill each writer after at most this many lines
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    lines: u32,
    /// Seed of the moments at which writers are killed, and of which sectors in flight are kept;
    /// the exact moment also depends on the machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long a writer may print nothing, and how long a reader may take
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time)]
    limit: Duration,
    #[command(flatten)]
    json: JsonArgument,
}

/// Crashes the writer and prints what the reader found.
pub(crate) fn any(arguments: &AnyArguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let file = arguments.json.open()?;
    let (writer, reader) = match server(arguments) {
        Some(server) => server.shells()?,
        None => (
            Shell::of("--writer", arguments.writer.as_deref().unwrap_or_default()),
            Shell::of("--reader", &arguments.reader),
        ),
    };
    let is_skipped = arguments.skip_start || arguments.start.is_some();
    let options = AnyOptions {
        writer,
        reader,
        promise: arguments.promise,
        start: if is_skipped { Start::Skipped } else { Start::Tested },
        enough: arguments.time.map_or(Enough::Rounds(arguments.rounds), Enough::Time),
        lines_max: arguments.lines,
        limit: arguments.limit,
        states: arguments.states,
        disk_bytes: arguments.disk_bytes,
    };
    let kinds = arguments.kind.into_iter().collect();
    let campaign = campaign(kinds, arguments.seed, &arguments.directory)?;
    let result =
        any::run(&options, &campaign, stop, &mut |words| match words.strip_prefix(WARNING) {
            Some(_) => {
                erase();
                complain!("{words}");
            }
            None => redraw(words),
        });
    erase();
    conclude(&[result?], file, stop)
}

fn server(arguments: &AnyArguments) -> Option<Server> {
    Some(Server {
        start: arguments.start.clone()?,
        ready: arguments.ready.clone()?,
        client: arguments.client.clone()?,
        reader: arguments.reader.clone(),
        stop: arguments.stop.clone(),
    })
}

/// `order`, `prefix:1s`, `set`, `map`.
fn promise(text: &str) -> Result<Promise, String> {
    match (text, text.split_once(':')) {
        ("order", _) => Ok(Promise::Order),
        ("set", _) => Ok(Promise::Set),
        ("map", _) => Ok(Promise::Map),
        (_, Some(("prefix", time))) => Ok(Promise::Prefix { may_go: some_time(time)? }),
        _ => Err(format!("{text:?} is no promise; take order, prefix:1s, set or map")),
    }
}
