//! The signals that end a command, and those that `tee` listens to.
//!
//! *Owns*: which are listened to. *May not touch*: what a command does then.
//!
//! A signal that was ignored when the process began (`nohup`, a shell's `&`) stays ignored.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use inkstone_io::is_ignored;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The exit code of a command that a signal has ended in order.
pub(crate) const ENDED: u8 = 130;

/// The first Ctrl-C ends a run in order: files removed, mounts taken away. The second ends the process at once; what
/// stays then is removed by the next start.
pub(crate) fn stop_on_signals(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)) {
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(ENDED), Arc::clone(stop))?;
        signal_hook::flag::register(signal, Arc::clone(stop))?;
    }
    Ok(())
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
