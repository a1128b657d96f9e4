//! How a log is opened: one setter for each option.
//!
//! *Owns*: the options as a handle. *May not touch*: what they mean; the log says that, and checks them when it is opened.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use inkstone::{Access, Durability, Lsn, NamedChoice, Options, Preparation};

use crate::error::{Failure, door, free, inkstone_code, inkstone_error, quietly};
use crate::event::{Listener, inkstone_destroy, inkstone_listener};
use crate::pointers::{given, out, text};

/// Options for a log. One thread at a time may change them; nothing changes them but the setters.
#[derive(Debug, Default)]
pub struct inkstone_options {
    options: Options,
}

impl inkstone_options {
    pub(crate) fn or_default(given: Option<&Self>) -> Options {
        given.map_or_else(Options::default, |given| given.options.clone())
    }
}

/// Changes an option.
///
/// # Safety
/// `options` is null, or options that nothing else uses during the call.
unsafe fn set(options: *mut inkstone_options, change: impl FnOnce(Options) -> Options) -> inkstone_code {
    // SAFETY: as the caller says.
    let options = unsafe { options.as_mut() };
    let Some(options) = options else { return inkstone_code::INKSTONE_INVALID };
    quietly(inkstone_code::INKSTONE_PANICKED, || {
        options.options = change(std::mem::take(&mut options.options));
        inkstone_code::INKSTONE_OK
    })
}

/// Changes an option that has a name.
///
/// # Safety
/// As [`set`]; `name` is null or a text that nothing changes during the call.
unsafe fn set_named<C: NamedChoice>(
    options: *mut inkstone_options,
    name: *const c_char,
    error: *mut *mut inkstone_error,
    change: impl Fn(Options, C) -> Options,
) -> inkstone_code {
    // SAFETY: as the caller says.
    let (given_options, name, error) = unsafe { (options.as_mut(), text(name, C::WHAT), out(error)) };
    door(error, || {
        let options = given(given_options, "options")?;
        let name = name?.to_string_lossy();
        let Some(choice) = C::from_name(&name) else {
            // The lab has more of them than a log can take.
            let fits = |choice: &&C| change(Options::default(), **choice).check().is_ok();
            let known: Vec<_> = C::ALL.iter().filter(fits).map(|choice| choice.name()).collect();
            return Err(Failure::Misuse(format!(
                "{} {name}: it must be one of {}",
                C::WHAT,
                known.join(", ")
            )));
        };
        options.options = change(std::mem::take(&mut options.options), choice);
        Ok(())
    })
}

/// Options with their defaults, which are durable and fit most uses.
///
/// Owner: the caller, who frees them with inkstone_options_free. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn inkstone_options_new() -> *mut inkstone_options {
    quietly(std::ptr::null_mut(), || Box::into_raw(Box::default()))
}

/// Options for many small logs, and for tests: segments of 64 KiB, records up to 32 KiB, no files prepared ahead of time.
///
/// Owner: the caller, who frees them with inkstone_options_free. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn inkstone_options_small() -> *mut inkstone_options {
    quietly(std::ptr::null_mut(), || Box::into_raw(Box::new(inkstone_options { options: Options::small() })))
}

/// Frees options. Logs that were opened with them do not need them. NULL is nothing.
///
/// Threads: any, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_free(options: *mut inkstone_options) {
    // SAFETY: null, or options that nothing uses any more.
    unsafe { free(options) }
}

/// Refuses options that contradict each other; the message has the reason. An opening checks the same.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_check(
    options: *const inkstone_options,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (options, error) = unsafe { (options.as_ref(), out(error)) };
    door(error, || Ok(given(options, "options")?.options.check()?))
}

/// The size of a segment's file: from 64 KiB to 4 GiB, a multiple of 4096; 64 MiB by default. A new log begins with smaller ones.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_segment_bytes(
    options: *mut inkstone_options,
    bytes: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.segment_bytes(bytes)) }
}

/// The size of the largest record, and of the largest batch: 16 MiB by default. It must fit in a segment.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_record_bytes_max(
    options: *mut inkstone_options,
    bytes: usize,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.record_bytes_max(bytes)) }
}

/// The size of each of the two buffers in which records are gathered: from 8 KiB to 512 MiB, 1 MiB by default.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_buffer_bytes(
    options: *mut inkstone_options,
    bytes: usize,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.buffer_bytes(bytes)) }
}

/// How many bytes of memory keep what was written last for this process's readers: 4 MiB by default. 0: readers read files.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_tail_bytes(
    options: *mut inkstone_options,
    bytes: usize,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.tail_bytes(bytes)) }
}

/// Whether to create a log where there is none (the default); otherwise a directory without a log is INKSTONE_NO_LOG, and no directory is
/// INKSTONE_IO.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_create(
    options: *mut inkstone_options,
    create: bool,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.create(create)) }
}

/// The caller knows that everything up to `lsn` was acknowledged as durable: if the log ends earlier, or is not there, opening is
/// INKSTONE_CORRUPT and changes no segment. It may make the directory and its lock file.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_expect_durable(
    options: *mut inkstone_options,
    lsn: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.expect_durable(Lsn::new(lsn))) }
}

/// The LSN of the first record of a new log, 1 by default. An existing log goes on after its last record.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_begin_at(
    options: *mut inkstone_options,
    lsn: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.begin_at(Lsn::new(lsn))) }
}

/// Whether each commit gets blocks of 4096 bytes of its own, instead of starting where the last one ended (the default): for
/// devices that may harm bytes that do not change.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_pad_groups(
    options: *mut inkstone_options,
    pad: bool,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.pad_groups(pad)) }
}

/// Whether the log has a thread of its own (the default). It commits records that no thread waits for and makes callbacks. Without
/// it only the program's threads commit: by inkstone_wait, by inkstone_append_durable, by inkstone_sync, by inkstone_close, or by filling
/// a buffer. inkstone_wait_durable and cursors then wait for one of these.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_own_thread(
    options: *mut inkstone_options,
    own_thread: bool,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.own_thread(own_thread)) }
}

/// How long the log's own thread gathers records that nobody waits for before it commits them, in microseconds: 200 by default.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_linger_us(
    options: *mut inkstone_options,
    us: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.linger(Duration::from_micros(us))) }
}

/// How long the log must have been idle, in microseconds, before its own thread writes a promise of what is durable: 100000 by
/// default.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_idle_us(
    options: *mut inkstone_options,
    us: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.idle(Duration::from_micros(us))) }
}

/// How many files of obsolete segments are kept so that their blocks can be used again: by default as tuned, else by rule.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_free_segments_max(
    options: *mut inkstone_options,
    count: usize,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.free_segments_max(count)) }
}

/// Whether a thread of the log prepares segments before they are needed (the default).
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_prepare_ahead(
    options: *mut inkstone_options,
    prepare_ahead: bool,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.prepare_ahead(prepare_ahead)) }
}

/// How many bytes of the disk all files of the log together may use; no limit by default. An append beyond it gets
/// INKSTONE_NO_ROOM.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_disk_budget_bytes(
    options: *mut inkstone_options,
    bytes: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.disk_budget_bytes(bytes)) }
}

/// NOT DURABLE AT ONCE. Every append counts as acknowledged when it returns, and waiting does not wait. A power loss, a kernel
/// panic or a killed process can lose the records of the last `max_age` microseconds. What is left is still a prefix.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_periodic_us(
    options: *mut inkstone_options,
    max_age: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.periodic(Duration::from_micros(max_age))) }
}

/// The listener gets an event for each commit that takes this long or longer, in microseconds: a second by default.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_slow_commit_us(
    options: *mut inkstone_options,
    us: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.slow_commit(Duration::from_micros(us))) }
}

/// The permissions of the files that the log creates, as for chmod: 0600 by default. The umask clears bits as usual.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_file_mode(
    options: *mut inkstone_options,
    mode: u32,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.file_mode(mode)) }
}

/// For experts: how often a waiting thread lets other threads run before it sleeps. By default the log sees by itself what pays.
///
/// INKSTONE_INVALID if `options` is NULL. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_yields(
    options: *mut inkstone_options,
    yields: u32,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.yields(yields)) }
}

/// How the blocks of a new segment are prepared: "zeros" (a commit then changes no metadata) or "fallocate" (quick to prepare,
/// slower to write). By default as tuned, else by rule.
///
/// Owner: `name` stays the caller's. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_preparation(
    options: *mut inkstone_options,
    name: *const c_char,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set_named::<Preparation>(options, name, error, Options::preparation) }
}

/// How files are read and written: "buffered" or "direct" (past the page cache). By default as tuned, else by rule.
///
/// Owner: `name` stays the caller's. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_access(
    options: *mut inkstone_options,
    name: *const c_char,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set_named::<Access>(options, name, error, Options::access) }
}

/// The call that makes a commit durable: "fdatasync", "fsync", "rwf-dsync", "o-dsync" or "o-sync". All are equally durable. By
/// default as tuned, else by rule.
///
/// Owner: `name` stays the caller's. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_durability(
    options: *mut inkstone_options,
    name: *const c_char,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { set_named::<Durability>(options, name, error, Options::durability) }
}

/// Has `listener` called with `context` for every event of a log that is opened with these options. `destroy`, which may be NULL, is
/// called once with `context` when these options and all logs, readers and cursors opened with them are freed (also when the listener is
/// replaced, or refused because `listener` is NULL).
///
/// The listener runs on the thread where the event happened, on several at the same time, with nothing of the log locked: it may append,
/// read, truncate and close, and must not free the log. An event that its own call causes can come within that call. One that
/// appends for every event may so never return, and the stack ends: append for rare kinds alone, or let another thread do it. It
/// should be quick. It must not throw a C++ exception or leave by longjmp. If it forks, the child must call exec or _exit.
///
/// Owner: `context` is passed on as it is. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set_listener(
    options: *mut inkstone_options,
    listener: inkstone_listener,
    context: *mut c_void,
    destroy: inkstone_destroy,
) -> inkstone_code {
    let listener = Listener::new(listener, context, destroy);
    let Some(listener) = listener else { return inkstone_code::INKSTONE_INVALID };
    // SAFETY: the rules of the header.
    unsafe { set(options, |options| options.listener(move |event| listener.tell(event))) }
}
