//! The signals that end a command, and those that `tee` listens to.
//!
//! *Owns*: which are listened to, how long an output is waited for after one. *May not touch*: what a command does then.
//!
//! A signal that was ignored when the process began (`nohup`, a shell's `&`) stays ignored.

use std::io::PipeReader;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use inkstone_io::{WaitingSignals, is_ignored};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// The exit code of a command that a signal has ended in order.
pub(crate) const ENDED: u8 = 130;

/// After a signal, a reader of the output that takes nothing for so long is not waited for.
const STILL: Duration = Duration::from_secs(1);
/// And one that takes something, but slowly: for so long in all.
const SLOW: Duration = Duration::from_secs(5);
const LEAST: Duration = Duration::from_millis(100);

/// How long this process has waited for its outputs after a signal.
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

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
    // One that comes while some of this is done only would end nothing, and be forgotten.
    let _waiting = WaitingSignals::here();
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

/// Waits until there is something in `done`. False when a signal has asked this command to end, and what `moved` gives stays the same
/// for [`STILL`], or this process has waited for [`SLOW`] since.
pub(crate) fn wait_for(done: &PipeReader, moved: impl Fn() -> u64) -> Result<bool, inkstone_io::Error> {
    let stop = STOP.get();
    let both: Vec<&PipeReader> = [Some(done), stop].into_iter().flatten().collect();
    if inkstone_io::wait_to_read(&both, None)? == Some(0) {
        return Ok(true);
    }
    let mut seen = moved();
    loop {
        let waited = Duration::from_nanos(WAITED_NS.load(Ordering::Relaxed));
        // However long others took: an output that takes everything at once is always written to.
        let at_most = SLOW.saturating_sub(waited).clamp(LEAST, STILL);
        let begun = Instant::now();
        let is_done = inkstone_io::wait_to_read(&[done], Some(at_most))?.is_some();
        let lasted = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        WAITED_NS.fetch_add(lasted, Ordering::Relaxed);
        let now = moved();
        if is_done || now == seen || waited >= SLOW {
            return Ok(is_done);
        }
        seen = now;
    }
}

/// Calls `tell` with each SIGINT and SIGTERM, in a thread of its own that sleeps until then; with each SIGHUP too, which
/// `hangup_is_meant` listens to even if it was ignored.
pub(crate) fn listen(hangup_is_meant: bool, tell: impl Fn(i32) + Send + 'static) -> anyhow::Result<()> {
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let wanted = wanted.filter(|signal| !is_ignored(*signal) || *signal == SIGHUP && hangup_is_meant);
    let waiting = WaitingSignals::here();
    let mut signals = Signals::new(wanted).context("listen for signals")?;
    drop(waiting);
    let listen = move || signals.forever().for_each(tell);
    std::thread::Builder::new().name("signals".into()).spawn(listen).context("start a thread")?;
    Ok(())
}
