//! The signals that end a command, and those that `tee` listens to.
//!
//! *Owns*: which are listened to. *May not touch*: what a command does then.
//!
//! A signal that was ignored when the process began (`nohup`, a shell's `&`) stays ignored.

use std::fs::File;
use std::io::PipeReader;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use inkstone_io::is_ignored;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// The exit code of a command that a signal has ended in order.
pub(crate) const ENDED: u8 = 130;

/// After a signal, a reader of the output that takes nothing for so long is not waited for.
const STILL: Duration = Duration::from_secs(1);

/// The handlers write to this pipe, so that a wait for an output ends with a signal.
static STOP: OnceLock<PipeReader> = OnceLock::new();

/// A file that may not grow further (`ulimit -f`) is an error of the write, as any disk that refuses, and ends nobody. By a handler
/// that does nothing, and not by ignoring: a program that this one starts has the default again.
pub(crate) fn outlive_size_limits() -> anyhow::Result<()> {
    if !is_ignored(SIGXFSZ) {
        signal_hook::flag::register(SIGXFSZ, Arc::default()).context("listen for SIGXFSZ")?;
    }
    Ok(())
}

/// The first Ctrl-C ends a run in order: files removed, mounts taken away. The second ends the process at once; what
/// stays then is removed by the next start.
pub(crate) fn stop_on_signals(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let (reader, writer) = std::io::pipe().context("listen for signals")?;
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)) {
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(ENDED), Arc::clone(stop))?;
        signal_hook::flag::register(signal, Arc::clone(stop))?;
        // Behind the flag: whoever is woken by it finds that set.
        signal_hook::low_level::pipe::register(signal, writer.try_clone().context("listen for signals")?)?;
    }
    // Nobody has set it before: this is called once.
    let _ = STOP.set(reader);
    Ok(())
}

/// Waits until an output takes bytes; false when a signal has asked this command to end, and it takes none for a while.
pub(crate) fn wait_to_write(file: &File) -> Result<bool, inkstone_io::Error> {
    match STOP.get() {
        Some(stop) => inkstone_io::wait_to_write_unless(file, stop, STILL),
        None => inkstone_io::wait_to_write(file).map(|()| true),
    }
}

/// Calls `tell` with each SIGINT and SIGTERM, in a thread of its own that sleeps until then; with each SIGHUP too, which
/// `hangup_is_meant` listens to even if it was ignored.
pub(crate) fn listen(hangup_is_meant: bool, tell: impl Fn(i32) + Send + 'static) -> anyhow::Result<()> {
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let wanted = wanted.filter(|signal| !is_ignored(*signal) || *signal == SIGHUP && hangup_is_meant);
    let mut signals = Signals::new(wanted).context("listen for signals")?;
    let listen = move || signals.forever().for_each(tell);
    std::thread::Builder::new().name("signals".into()).spawn(listen).context("start a thread")?;
    Ok(())
}
