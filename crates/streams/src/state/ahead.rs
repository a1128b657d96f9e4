//! What a batch would change, before it is appended.
//!
//! *Owns*: the bounds of streams behind each change of a batch. *May not touch*: the state.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::record::Change;
use crate::state::{State, made};
use crate::words::Bounds;

/// The bounds of streams as they will be after the changes of a batch.
#[derive(Debug)]
pub(crate) struct Ahead<'a> {
    state: &'a State,
    /// The stream that was changed last: most batches have one.
    last: Option<(u64, Option<Bounds>)>,
    /// The others.
    changed: BTreeMap<u64, Option<Bounds>>,
}

impl<'a> Ahead<'a> {
    pub(crate) fn new(state: &'a State) -> Self {
        Self { state, last: None, changed: BTreeMap::new() }
    }

    pub(crate) fn bounds(&self, stream: u64) -> Result<Bounds> {
        let last = self.last.as_ref().filter(|(last, _)| *last == stream).map(|(_, bounds)| bounds);
        match last.or_else(|| self.changed.get(&stream)) {
            Some(bounds) => bounds.ok_or(Error::NoStream { stream }),
            None => self.state.bounds(stream),
        }
    }

    /// Before the creation of a second stream: the owner of the first one may have freed its front
    /// without a record, and an opening takes that for a truncation only in a log with one stream.
    pub(crate) fn put_where_the_first_begins(&self, out: &mut Vec<u8>) {
        let mut ids = self.state.ids.iter();
        if let (Some(only), None) = (ids.next(), ids.next())
            && let Ok(Bounds { first, .. }) = self.bounds(*only)
        {
            Change::TruncateBefore { stream: *only, first }.put(out);
        }
    }

    /// Makes a change of a stream, if it may be made.
    pub(crate) fn make(&mut self, change: &Change<'_>) -> Result<()> {
        let Some(stream) = change.stream() else { return Ok(()) };
        let after = match (change, self.bounds(stream)) {
            (Change::Create { first, .. }, Err(_)) => Some(Bounds { first: *first, next: *first }),
            (_, before) => made(stream, before?, change)?,
        };
        if let Some((before, bounds)) = self.last.replace((stream, after))
            && before != stream
        {
            self.changed.insert(before, bounds);
        }
        Ok(())
    }
}
