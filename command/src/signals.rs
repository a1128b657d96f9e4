//! The signals that end a command, and those that `tee` handles.
//!
//! *Owns*: which signals are handled, how long an output is waited for after one. *May not touch*:
//! what a command does then.
//!
//! A signal that was ignored when the process began (`nohup`, a shell's `&`) stays ignored.

use std::io::PipeReader;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use inkstone_io::{WaitingSignals, is_ignored};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::threads;

/// The exit code of a command that ended in order after a signal.
pub(crate) const ENDED: u8 = 130;

/// After a signal, a reader of the output that takes nothing for this long is not waited for.
const STILL: Duration = Duration::from_secs(1);
/// A reader that takes something, but slowly, is waited for this long in all.
const SLOW: Duration = Duration::from_secs(5);
const LEAST: Duration = Duration::from_millis(100);

/// How long this process has waited for its outputs after a signal.
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// The handlers write to this pipe, so that a signal ends a wait for an output.
static STOP: OnceLock<PipeReader> = OnceLock::new();

/// With SIGXFSZ handled, a file that may not grow (`ulimit -f`) fails the write like a full disk
/// and does not end the process. The handler does nothing; ignoring the signal would pass to
/// programs that this one starts.
pub(crate) fn outlive_size_limits() -> anyhow::Result<()> {
    if !is_ignored(SIGXFSZ) {
        signal_hook::flag::register(SIGXFSZ, Arc::default()).context("listen for SIGXFSZ")?;
    }
    Ok(())
}

/// The first Ctrl-C ends a run in order: files are removed, file systems unmounted. The second ends
/// the process at once; the next start removes what is left.
pub(crate) fn stop_on_signals(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let (reader, writer) = std::io::pipe().context("listen for signals")?;
    // A signal that came halfway through this would be lost.
    let _waiting = WaitingSignals::here();
    for signal in
        [SIGINT, SIGQUIT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal))
    {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            i32::from(ENDED),
            Arc::clone(stop),
        )?;
        signal_hook::flag::register(signal, Arc::clone(stop))?;
        // After the flag: a thread that this wakes finds the flag set.
        signal_hook::low_level::pipe::register(
            signal,
            writer.try_clone().context("listen for signals")?,
        )?;
    }
    // This is called once, so it is not set yet.
    let _ = STOP.set(reader);
    Ok(())
}

/// Waits until `done` has something to read. False after a signal, once the value of `moved` has
/// not changed for [`STILL`] or this process has waited for [`SLOW`].
pub(crate) fn wait_for(
    done: &PipeReader,
    moved: impl Fn() -> u64,
) -> Result<bool, inkstone_io::Error> {
    let stop = STOP.get();
    let both: Vec<&PipeReader> = [Some(done), stop].into_iter().flatten().collect();
    if inkstone_io::wait_to_read(&both, None)? == Some(0) {
        return Ok(true);
    }
    let mut seen = moved();
    loop {
        let waited = Duration::from_nanos(WAITED_NS.load(Ordering::Relaxed));
        // At least LEAST: an output that takes everything at once is always written, however slow
        // the others were.
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

/// Calls `tell` with each SIGINT, SIGTERM and SIGHUP, in a thread of its own. Ignored signals stay
/// ignored, except SIGHUP if `hangup_is_meant`.
pub(crate) fn listen(
    hangup_is_meant: bool,
    tell: impl Fn(i32) + Send + 'static,
) -> anyhow::Result<()> {
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let wanted =
        wanted.filter(|signal| !is_ignored(*signal) || *signal == SIGHUP && hangup_is_meant);
    let waiting = WaitingSignals::here();
    let mut signals = Signals::new(wanted).context("listen for signals")?;
    drop(waiting);
    let listen = move || signals.forever().for_each(tell);
    Ok(threads::start("signals", listen)?)
}
