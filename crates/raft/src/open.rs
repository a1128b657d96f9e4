//! The first steps of an opening: is it a raft log, whose, and what does it hold?
//!
//! *Owns*: the order of these questions; a new log's first state. *May not touch*: what records
//! mean (`replay.rs`).

use std::path::Path;
use std::sync::Arc;

use inkstone::{Log, Reader};

use crate::callbacks::Callbacks;
use crate::error::Result;
use crate::listener::wrap;
use crate::options::Options;
use crate::record::{CHANGE_BYTES_MAX, encode_state};
use crate::replay::{Expected, Span};
use crate::state::State;

/// Refuses options under which a raft log could not keep its promises.
pub(crate) fn check(options: &Options) -> Result<()> {
    options.log.check()?;
    refuse_periodic(&options.log)?;
    let bytes = options.log.largest_record_bytes();
    if bytes < CHANGE_BYTES_MAX {
        let why = format!(
            "record_bytes_max {bytes}: a raft log needs at least {CHANGE_BYTES_MAX}, for a vote \
             with a long name"
        );
        return Err(inkstone::Error::Invalid(why).into());
    }
    Ok(())
}

/// Refuses options of the log below under which a vote would not be durable in time.
pub(crate) fn refuse_periodic(log: &inkstone::Options) -> Result<()> {
    if log.is_periodic() {
        let why = "periodic: a vote must be durable when save_vote returns";
        return Err(inkstone::Error::Invalid(why.into()).into());
    }
    Ok(())
}

/// The options as the log below gets them, and the callbacks that its listener waits for. It keeps
/// no tail in memory: the raft log keeps the last entries itself.
pub(crate) fn below(options: Options) -> (Options, Arc<Callbacks>) {
    let callbacks = Arc::default();
    let log = wrap(options.log.tail_bytes(0), &callbacks);
    (Options { log, ..options }, callbacks)
}

/// Asks a reader whose log there is, if any. Opening a log for writing begins an epoch in it, and a
/// foreign one is left as it is.
pub(crate) fn ask(reader: inkstone::Result<Reader>, path: &Path, options: &Options) -> Result<()> {
    match reader {
        Ok(reader) if reader.first() <= reader.durable() => {
            Expected { path, raft_group: options.raft_group }.check_front(&reader)
        }
        Ok(_) | Err(inkstone::Error::NoLog { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes the state of a log that is open for writing again, or that of a new one.
pub(crate) fn finish(log: &Log, path: &Path, options: &Options) -> Result<State> {
    let span = Span { first: log.first(), last: log.last(), head: log.head_first() };
    if span.first <= span.last {
        return Expected { path, raft_group: options.raft_group }.replay(&log.reader(), span);
    }
    let mut state = State::new(options.raft_group);
    let mut bytes = Vec::new();
    encode_state(&mut bytes, &state);
    state.states.push(log.append_durable(&bytes)?);
    Ok(state)
}
