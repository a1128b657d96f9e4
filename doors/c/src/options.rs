//! How a log is opened: one setter for all options, by name.
//!
//! *Owns*: the options as a handle. *May not touch*: what they mean; the log says that, and checks
//! them when it is opened.

use std::ffi::{c_char, c_void};
use std::str::FromStr;
use std::time::Duration;

use inkstone::system::NamedChoice;
use inkstone::{Lsn, Options};

use crate::error::{Failure, door, free, inkstone_code, inkstone_error, quietly};
use crate::event::{Listener, inkstone_destroy, inkstone_listener};
use crate::out::out;
use crate::pointers::{given, text};

/// Options for a log. Nothing changes them but the setters.
#[derive(Debug, Default)]
pub struct inkstone_options {
    options: Options,
    /// Those of streams beside it; their log's are the ones above.
    streams: ::inkstone_streams::Options,
}

impl inkstone_options {
    pub(crate) fn or_default(given: Option<&Self>) -> Options {
        given.map_or_else(Options::default, |given| given.options.clone())
    }

    pub(crate) fn of_streams(given: Option<&Self>) -> ::inkstone_streams::Options {
        given.map_or_else(::inkstone_streams::Options::new, |given| {
            given.streams.clone().log(given.options.clone())
        })
    }
}

/// Changes an option by the text of its value, or says what the value must be.
type Change = fn(Options, &str) -> Result<Options, String>;

/// The options of a log. The text of `inkstone_options_set` says what each is.
const OF_LOG: [(&str, Change); 18] = [
    ("begin_at", |options, value| Ok(options.begin_at(Lsn::new(number(value)?)))),
    ("create", |options, value| Ok(options.create(truth(value)?))),
    ("create_parents", |options, value| Ok(options.create_parents(truth(value)?))),
    ("disk_budget_bytes", |options, value| Ok(options.disk_budget_bytes(number(value)?))),
    ("expect_durable", |options, value| Ok(options.expect_durable(Lsn::new(number(value)?)))),
    ("file_mode", |options, value| Ok(options.file_mode(mode(value)?))),
    ("periodic_us", |options, value| Ok(options.periodic(micros(value)?))),
    ("record_bytes_max", |options, value| Ok(options.record_bytes_max(number(value)?))),
    ("segment_bytes", |options, value| Ok(options.segment_bytes(number(value)?))),
    ("slow_commit_us", |options, value| Ok(options.slow_commit(micros(value)?))),
    ("access", |options, value| named(options, value, Options::access)),
    ("buffer_bytes", |options, value| Ok(options.buffer_bytes(number(value)?))),
    ("durability", |options, value| named(options, value, Options::durability)),
    ("free_segments_max", |options, value| Ok(options.free_segments_max(number(value)?))),
    ("own_thread", |options, value| Ok(options.own_thread(truth(value)?))),
    ("pad_groups", |options, value| Ok(options.pad_groups(truth(value)?))),
    ("preparation", |options, value| named(options, value, Options::preparation)),
    ("tail_bytes", |options, value| Ok(options.tail_bytes(number(value)?))),
];

/// The same of streams.
type StreamsChange =
    fn(::inkstone_streams::Options, &str) -> Result<::inkstone_streams::Options, String>;

const OF_STREAMS: [(&str, StreamsChange); 3] = [
    ("cache_bytes", |options, value| Ok(options.cache_bytes(number(value)?))),
    ("section_bytes", |options, value| Ok(options.section_bytes(number(value)?))),
    ("size_multiple", |options, value| Ok(options.size_multiple(number(value)?))),
];

fn number<N: FromStr>(value: &str) -> Result<N, String> {
    value
        .parse()
        .map_err(|_| format!("a whole number from 0 that {} bits hold", 8 * size_of::<N>()))
}

fn micros(value: &str) -> Result<Duration, String> {
    Ok(Duration::from_micros(number(value)?))
}

fn mode(value: &str) -> Result<u32, String> {
    u32::from_str_radix(value, 8).map_err(|_| "permissions in octal, as 640".into())
}

/// The names of all.
fn names() -> impl Iterator<Item = &'static str> {
    OF_LOG.iter().map(|(name, _)| *name).chain(OF_STREAMS.iter().map(|(name, _)| *name))
}

fn truth(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| "true or false".into())
}

fn named<C: NamedChoice>(
    options: Options,
    value: &str,
    change: fn(Options, C) -> Options,
) -> Result<Options, String> {
    if let Some(choice) = C::from_name(value) {
        return Ok(change(options, choice));
    }
    // The lab has more of them than a log can take.
    let fits = |choice: &&C| change(Options::default(), **choice).check().is_ok();
    let known: Vec<_> = C::ALL.iter().filter(fits).map(|choice| choice.name()).collect();
    Err(format!("one of {}", known.join(", ")))
}

/// Options with their defaults, which are durable and fit most uses.
///
/// Owner: the caller, who frees them with inkstone_options_free. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn inkstone_options_new() -> *mut inkstone_options {
    quietly(std::ptr::null_mut(), || Box::into_raw(Box::default()))
}

/// Frees options. Logs that were opened with them do not need them. NULL is nothing.
///
/// Threads: any, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_free(options: *mut inkstone_options) {
    // SAFETY: null, or options that nothing uses any more.
    unsafe { free(options) }
}

/// Sets an option: `value` is a text, whatever the option is. An unknown name, or a value that does
/// not fit, is INKSTONE_INVALID, and the message says what would; an opening refuses options that
/// contradict each other. The names that a program may need:
///
/// - begin_at: the LSN of the first record of a new log, 1 by default. An existing log goes on
///   after its last record.
/// - create: "true", the default: a log is created where there is none. "false": that is
///   INKSTONE_NO_LOG, also where the directory is missing too.
/// - create_parents: "true": missing directories above the log's own are created too. "false", the
///   default: that is INKSTONE_NO_LOG, since a file system may not be mounted there.
/// - disk_budget_bytes: how many bytes of the disk all files of the log together may use; no limit
///   by default. An append beyond it gets INKSTONE_NO_ROOM.
/// - expect_durable: the caller knows that everything up to this LSN was acknowledged as durable:
///   if the log ends earlier, or is not there, opening is INKSTONE_CORRUPT and changes no segment.
///   It may make the directory and its lock file.
/// - file_mode: the permissions of the files that the log creates, in octal as for chmod: 600 by
///   default. The umask clears bits as usual.
/// - periodic_us: NOT DURABLE AT ONCE. Every append counts as acknowledged when it returns, and
///   waiting does not wait. A power loss, a kernel panic or a killed process can lose the records
///   of the last so many microseconds. What is left is still a prefix.
/// - record_bytes_max: the size of the largest record, and of the largest batch: 16 MiB by default.
///   It must fit in a segment.
/// - segment_bytes: the size of a segment's file: from 64 KiB to 4 GiB, a multiple of 4096; 64 MiB
///   by default. A new log begins with smaller ones.
/// - slow_commit_us: the listener gets an event for each commit that takes this long or longer: a
///   second by default.
///
/// The names for experts:
///
/// - access: how files are read and written: "buffered" or "direct" (past the page cache). By
///   default by rule.
/// - buffer_bytes: the size of each of the two buffers in which records are gathered: from 8 KiB to
///   512 MiB, 1 MiB by default.
/// - durability: the call that makes a commit durable: "fdatasync", "fsync", "rwf-dsync", "o-dsync"
///   or "o-sync". All are equally durable. By default by rule.
/// - free_segments_max: how many files of obsolete segments are kept so that their blocks can be
///   used again. By default by rule.
/// - own_thread: "true", the default: a thread of the log commits records that no thread waits for,
///   and makes callbacks. "false": only the program's threads commit, by inkstone_wait,
///   inkstone_append_durable, inkstone_sync, inkstone_close, or by filling a buffer;
///   inkstone_wait_durable and cursors wait for one of these.
/// - pad_groups: "true": each commit gets blocks of 4096 bytes of its own, for devices that may
///   harm bytes that do not change. "false", the default: it starts where the last one ended.
/// - preparation: how the blocks of a new segment are prepared: "zeros" (a commit then changes no
///   metadata) or "fallocate" (quick to prepare, slower to write). By default by rule.
/// - tail_bytes: how many bytes of memory keep what was written last for this process's readers: 4
///   MiB by default. 0: readers read files.
///
/// The names for inkstone_streams_open:
///
/// - cache_bytes: how many bytes of directories of older sections are kept in memory: 16 MiB by
///   default.
/// - section_bytes: how many bytes of the log share one directory: from 16 KiB to 2 GiB, 64 MiB by
///   default; best the size of a segment.
/// - size_multiple: by how much the log may be larger than what lives in it, from 2, the default,
///   before records in its oldest section are moved.
///
/// Owner: `name` and `value` stay the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_options_set(
    options: *mut inkstone_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (options, name, value, error) =
        unsafe { (options.as_mut(), text(name, "name"), text(value, "value"), out(error)) };
    door(error, || {
        let options = given(options, "options")?;
        let (name, value) = (name?.to_string_lossy(), value?.to_string_lossy());
        let refused = |fits| Failure::Misuse(format!("{name} {value}: it must be {fits}"));
        if let Some((_, change)) = OF_LOG.iter().find(|(known, _)| *known == name) {
            options.options = change(options.options.clone(), &value).map_err(refused)?;
        } else if let Some((_, change)) = OF_STREAMS.iter().find(|(known, _)| *known == name) {
            options.streams = change(options.streams.clone(), &value).map_err(refused)?;
        } else {
            let known: Vec<_> = names().collect();
            return Err(Failure::Misuse(format!(
                "there is no option {name}: there are {}",
                known.join(", ")
            )));
        }
        Ok(())
    })
}

/// Has `listener` called with `context` for every event of a log that is opened with these options.
/// `destroy`, which may be NULL, is called once with `context` when these options and all logs,
/// readers and cursors opened with them are freed (also when the listener is replaced, or refused
/// because `listener` is NULL).
///
/// The listener runs on the thread where the event happened, on several at the same time, with
/// nothing of the log locked: it may append, read, truncate and close, and must not free the log.
/// An event that its own call causes can come within that call. One that appends for every event
/// may so never return, and the stack ends: append for rare kinds alone, or let another thread do
/// it. It should be quick. It must not throw a C++ exception or leave by longjmp. If it forks, the
/// child must call exec or _exit.
///
/// Owner: `context` is passed on as it is.
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
    let options = unsafe { options.as_mut() };
    let Some(options) = options else { return inkstone_code::INKSTONE_INVALID };
    quietly(inkstone_code::INKSTONE_PANICKED, || {
        let known = std::mem::take(&mut options.options);
        options.options = known.listener(move |event| listener.tell(event));
        inkstone_code::INKSTONE_OK
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_says_what_each_name_is() {
        let header = include_str!("../include/inkstone.h");
        let listed = header.lines().filter_map(|line| line.strip_prefix("// - ")?.split_once(':'));
        assert!(listed.map(|(name, _)| name).eq(names()));
    }
}
