//! The events of a log, for a function of the program's.
//!
//! *Owns*: the listener, and an event while a listener has it. *May not touch*: when an event
//! happens.

use std::ffi::{CString, c_char, c_void};
use std::ptr;

use inkstone::Event;

use crate::error::{c_text, inkstone_error};

/// What happened. Further kinds may come in later versions.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum inkstone_event_kind {
    /// A kind that this version of the C library has no name for.
    INKSTONE_EVENT_OTHER = 0,
    /// The log was opened.
    INKSTONE_EVENT_RECOVERED = 1,
    /// Something is not available or not safe here, and the log does something else instead.
    INKSTONE_EVENT_FALLBACK = 2,
    /// A segment is full and durable.
    INKSTONE_EVENT_SEGMENT_SEALED = 3,
    /// A segment change found no prepared file and used something else.
    INKSTONE_EVENT_POOL_EMPTY = 4,
    /// The log could not prepare a file in the background; it tries again.
    INKSTONE_EVENT_PREPARATION_FAILED = 5,
    /// A commit took longer than the option slow_commit_us.
    INKSTONE_EVENT_SLOW_COMMIT = 6,
    /// A write or sync failed, and the log is poisoned: inkstone_event_error.
    INKSTONE_EVENT_POISONED = 7,
}

use inkstone_event_kind::{
    INKSTONE_EVENT_FALLBACK, INKSTONE_EVENT_OTHER, INKSTONE_EVENT_POISONED,
    INKSTONE_EVENT_POOL_EMPTY, INKSTONE_EVENT_PREPARATION_FAILED, INKSTONE_EVENT_RECOVERED,
    INKSTONE_EVENT_SEGMENT_SEALED, INKSTONE_EVENT_SLOW_COMMIT,
};

/// An event, valid while a listener runs.
#[derive(Debug)]
pub struct inkstone_event {
    kind: inkstone_event_kind,
    text: CString,
    error: Option<inkstone_error>,
}

/// A function that gets the log's events. The event is the library's and valid until the function
/// returns.
pub type inkstone_listener =
    Option<unsafe extern "C" fn(context: *mut c_void, event: *const inkstone_event)>;

/// A function that is called when a context is not needed any more.
pub type inkstone_destroy = Option<unsafe extern "C" fn(context: *mut c_void)>;

pub(crate) struct Listener {
    function: unsafe extern "C" fn(*mut c_void, *const inkstone_event),
    context: *mut c_void,
    destroy: inkstone_destroy,
}

// SAFETY: the header tells that the context is handed to whichever thread an event happens on, to
// several at the same time.
unsafe impl Send for Listener {}
// SAFETY: the same.
unsafe impl Sync for Listener {}

impl Listener {
    /// `None`, and the context destroyed, if there is no function.
    pub(crate) fn new(
        function: inkstone_listener,
        context: *mut c_void,
        destroy: inkstone_destroy,
    ) -> Option<Self> {
        match (function, destroy) {
            (Some(function), destroy) => Some(Self { function, context, destroy }),
            (None, Some(destroy)) => {
                // SAFETY: the function is the caller's.
                unsafe { destroy(context) };
                None
            }
            (None, None) => None,
        }
    }

    pub(crate) fn tell(&self, event: &Event) {
        let told = inkstone_event::of(event);
        // SAFETY: the function is the caller's, and the event outlives the call.
        unsafe { (self.function)(self.context, &raw const told) }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the function is the caller's; a listener is dropped once.
            unsafe { destroy(self.context) }
        }
    }
}

impl inkstone_event {
    fn of(event: &Event) -> Self {
        let (kind, text) = match event {
            Event::Recovered(recovery) => (INKSTONE_EVENT_RECOVERED, recovery.to_string()),
            Event::Fallback { what } => (INKSTONE_EVENT_FALLBACK, what.clone()),
            Event::SegmentSealed(segment) => (
                INKSTONE_EVENT_SEGMENT_SEALED,
                format!(
                    "{} is full: LSN {} to {}",
                    segment.path.display(),
                    segment.first,
                    segment.last
                ),
            ),
            Event::PoolEmpty { segment_bytes, fallocated } => (
                INKSTONE_EVENT_POOL_EMPTY,
                format!(
                    "no prepared file for a segment of {segment_bytes} bytes; its blocks are {}",
                    if *fallocated { "only reserved" } else { "written" }
                ),
            ),
            Event::PreparationFailed { why } => (INKSTONE_EVENT_PREPARATION_FAILED, why.clone()),
            Event::SlowCommit { took, bytes } => (
                INKSTONE_EVENT_SLOW_COMMIT,
                format!("a commit of {bytes} bytes took {} us", took.as_micros()),
            ),
            Event::Poisoned(poison) => (INKSTONE_EVENT_POISONED, poison.to_string()),
            Event::Tried(tried) => (INKSTONE_EVENT_OTHER, tried.to_string()),
            other => (INKSTONE_EVENT_OTHER, format!("{other:?}")),
        };
        let error = match event {
            Event::Poisoned(poison) => {
                Some(inkstone_error::of(&inkstone::Error::Poisoned(poison.clone())))
            }
            _ => None,
        };
        Self { kind, text: c_text(text), error }
    }
}

/// What kind of event it is.
///
/// Threads: any, while the listener runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_event_get_kind(
    event: *const inkstone_event,
) -> inkstone_event_kind {
    // SAFETY: null, or an event that a listener was given.
    unsafe { event.as_ref() }.map_or(INKSTONE_EVENT_OTHER, |event| event.kind)
}

/// What happened: a sentence for people, in UTF-8. "" for NULL.
///
/// Owner: the event; valid while the listener runs. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_event_text(event: *const inkstone_event) -> *const c_char {
    // SAFETY: as above.
    unsafe { event.as_ref() }.map_or(c"".as_ptr(), |event| event.text.as_ptr())
}

/// The error of INKSTONE_EVENT_POISONED; NULL for other events.
///
/// Owner: the event; valid while the listener runs. Do not free it. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_event_error(
    event: *const inkstone_event,
) -> *const inkstone_error {
    // SAFETY: as above.
    let error = unsafe { event.as_ref() }.and_then(|event| event.error.as_ref());
    error.map_or(ptr::null(), ptr::from_ref)
}
