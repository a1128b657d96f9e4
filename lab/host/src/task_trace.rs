//! A trace of what chosen threads wait for: their calls that sync or write, when each runs and who
//! wakes it, and the kernel's own delays of it.
//!
//! *Owns*: which threads. *May not touch*: an instance's life ([`crate::trace`]), what the events
//! mean ([`crate::trace_decode`]).

use std::time::Duration;

use inkstone_io::Result;

use crate::trace::{BlockTrace, Trace, enable_events};
use crate::trace_decode::{CALL_EVENTS, TASK_EVENTS, THROTTLE_EVENTS, THROTTLE_FILTER};
use crate::trace_event::TraceEvent;

/// How long the reader sleeps between two rounds: the watched program needs the processor.
const PAUSE: Duration = Duration::from_millis(20);

/// A running trace of chosen threads, and of those that they start. Dropped it ends and leaves
/// nothing.
pub struct TaskTrace(BlockTrace);

impl TaskTrace {
    /// Starts it with these threads.
    ///
    /// # Errors
    /// As [`BlockTrace::start`].
    pub fn start(threads: &[u32]) -> Result<TaskTrace> {
        let chosen = words(threads);
        let trace = BlockTrace::start_with(PAUSE, |instance| {
            instance.write("set_event_pid", &chosen)?;
            instance.write("options/event-fork", "1")?;
            let calls = CALL_EVENTS.iter().filter(|spec| spec.is_call());
            enable_events(instance, TASK_EVENTS.iter().chain(calls), "", |_| true)
        })?;
        Ok(TaskTrace(trace))
    }

    /// Shows these threads, too.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add(&self, threads: &[u32]) -> Result<()> {
        match threads {
            [] => Ok(()),
            threads => self.0.instance().write("set_event_pid", &words(threads)),
        }
    }

    /// The events that came after the first `count`, in the order in which they were read.
    pub fn after(&self, count: usize) -> Vec<TraceEvent> {
        self.0.after(count)
    }

    /// Ends the trace and returns its events.
    ///
    /// # Errors
    /// As [`BlockTrace::stop`].
    pub fn stop(self) -> Result<Trace> {
        self.0.stop()
    }
}

fn words(threads: &[u32]) -> String {
    threads.iter().map(u32::to_string).collect::<Vec<String>>().join(" ")
}

/// A running trace of the moments in which the kernel passes on requests that a cgroup's limit had
/// held back. Dropped it ends and leaves nothing.
pub struct ThrottleTrace(BlockTrace);

impl ThrottleTrace {
    /// Starts it.
    ///
    /// # Errors
    /// As [`BlockTrace::start`]; before Linux 6.3 the kernel cannot choose by function.
    pub fn start() -> Result<ThrottleTrace> {
        let trace = BlockTrace::start_with(PAUSE, |instance| {
            for spec in THROTTLE_EVENTS {
                instance.write(&format!("events/{}/filter", spec.path), THROTTLE_FILTER)?;
            }
            enable_events(instance, THROTTLE_EVENTS.iter(), "", |_| true)
        })?;
        Ok(ThrottleTrace(trace))
    }

    /// Ends the trace and returns its events.
    ///
    /// # Errors
    /// As [`BlockTrace::stop`].
    pub fn stop(self) -> Result<Trace> {
        self.0.stop()
    }
}
