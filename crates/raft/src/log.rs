//! A raft log in a log of its own.
//!
//! *Owns*: the order of writes: each is checked, becomes a record, and then changes the state. *May
//! not touch*: the rules (`state.rs`), the bytes (`record.rs`), files.
//!
//! One thread writes at a time. The lock of the state is taken only for moments in between, so that
//! readers never wait for a disk.

mod entries;
mod then;

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use inkstone::{AnyDirectory, Append, Log, Lsn, OsDirectory, Reader};

use crate::callbacks::{Callback, Callbacks, run};
use crate::core::{Core, Source};
use crate::error::{Error, Result};
use crate::home::{Home, Then};
use crate::listener::is_listening_here;
use crate::open::{ask, below, check, finish};
use crate::options::Options;
use crate::record::{encode_change, encode_state};
use crate::state::Change;
use crate::sync::{Mutex, MutexGuard, lock, try_lock, yield_now};
use crate::words::{EntryId, NewEntry};

/// A raft log in a log of its own.
pub(crate) struct OneLog {
    log: Log,
    order: Mutex<Order>,
    core: Arc<Core>,
    memory_bytes: usize,
    /// Dropped after the log, which calls back what becomes durable.
    _end: End,
}

/// What only the writing thread knows.
#[derive(Default)]
pub(crate) struct Order {
    /// No state is tried in this segment again: it was too large for a record.
    no_state_in: Option<Lsn>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    payloads: Vec<Arc<[u8]>>,
}

/// When it is dropped, the callbacks that are left get the error that the raft log has ended.
struct End(Arc<Core>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl OneLog {
    pub(crate) fn open(path: &Path, options: Options) -> Result<Self> {
        check(&options)?;
        let (options, callbacks) = below(options);
        ask(Reader::open(path, &options.log), path, &options)?;
        let log = Log::open(path, options.log.clone())?;
        let directory = OsDirectory::open(path).map_err(inkstone::Error::from)?;
        Self::opened(log, AnyDirectory::new(directory), &options, callbacks)
    }

    pub(crate) fn open_in(directory: AnyDirectory, options: Options) -> Result<Self> {
        check(&options)?;
        let (options, callbacks) = below(options);
        let reader = Reader::open_in(directory.clone(), options.log.clone());
        ask(reader, directory.path(), &options)?;
        let log = Log::open_in(directory.clone(), options.log.clone())?;
        Self::opened(log, directory, &options, callbacks)
    }

    fn opened(
        log: Log,
        directory: AnyDirectory,
        options: &Options,
        callbacks: Arc<Callbacks>,
    ) -> Result<Self> {
        let state = finish(&log, directory.path(), options)?;
        let core = Arc::new(Core::new(state, log.reader(), directory, callbacks, Source::Log));
        let memory_bytes = options.memory_bytes;
        Ok(Self {
            log,
            order: Mutex::default(),
            core: Arc::clone(&core),
            memory_bytes,
            _end: End(core),
        })
    }

    /// As [`Home::sync`], after a record of what is committed, if it has none yet.
    fn sync_committed(&self) -> Result<()> {
        self.core().check()?;
        let mut order = self.order();
        let to_say = self.core().memory().to_say;
        if let Some(index) = to_say {
            // Its flush is the one of the sync.
            let _unwaited = self.write(&mut order, &Change::Commit(index))?;
        }
        drop(order);
        self.sync()
    }

    /// Waits until no other thread writes. A callback or listener may run on the thread that makes
    /// room for the one that writes, so there it does the log's work while it waits.
    fn order(&self) -> Turn<'_> {
        let callbacks = &self.core().callbacks;
        let order = if callbacks.is_calling_here() || is_listening_here() {
            loop {
                if let Some(order) = try_lock(&self.order) {
                    break order;
                }
                // A failure is the other thread's, and this one's when its turn comes.
                let _ = self.log.sync();
                yield_now();
            }
        } else {
            lock(&self.order)
        };
        callbacks.begin_write();
        Turn { order: Some(order), callbacks }
    }

    /// Writes a change that was checked, and makes it in memory.
    fn write(&self, order: &mut Order, change: &Change) -> Result<Append<'_>> {
        let to_say = self.core().memory().to_say;
        order.bytes.clear();
        encode_change(&mut order.bytes, change, to_say);
        let append = self.core().noted(self.log.append(&order.bytes))?;
        {
            let durable = self.log.durable();
            let mut memory = self.core().memory();
            memory.to_say = None;
            memory.settle_vote(durable);
            memory.apply(change);
            match change {
                Change::Vote(_) => memory.vote_lsn = append.lsn(),
                // The state is smaller now.
                Change::Purge { .. } => order.no_state_in = None,
                Change::Truncate(_) | Change::Commit(_) => {}
            }
        }
        self.repeat_state(order);
        Ok(append)
    }

    /// Writes the state again if the log has begun another segment since the last one. If that
    /// cannot be done now, the next write tries again: until then the front of the log stays
    /// longer.
    fn repeat_state(&self, order: &mut Order) {
        let head = self.log.head_first();
        {
            let memory = self.core().memory();
            if memory.state.states.last().is_some_and(|last| *last >= head)
                || order.no_state_in == Some(head)
            {
                return;
            }
            order.bytes.clear();
            encode_state(&mut order.bytes, &memory.state);
        }
        match self.core().noted(self.log.append(&order.bytes).map(|append| append.lsn())) {
            Ok(lsn) => {
                let mut memory = self.core().memory();
                memory.state.states.push(lsn);
                memory.to_say = None;
            }
            Err(Error::Log(inkstone::Error::TooLarge { .. })) => order.no_state_in = Some(head),
            // A failure is noted, and the next call returns it.
            Err(_) => {}
        }
        order.forget_large();
    }

    /// Truncates the front of the log as far as no entry from `first` on needs it, and returns
    /// whether there was anything to truncate. The log begins with a state then.
    fn release(&self, first: u64) -> Result<bool> {
        let Some(front) = self.core().memory().state.front_for(first) else { return Ok(false) };
        if front <= self.log.first() {
            return Ok(false);
        }
        let released = self.core().noted(self.log.truncate_before(front));
        // A file that could not be released does not bring its records back.
        let front = self.log.first();
        let mut memory = self.core().memory();
        memory.state.purge_before(front);
        memory.mind_bounds();
        released.map(|()| true)
    }
}

impl Home for OneLog {
    fn core(&self) -> &Arc<Core> {
        &self.core
    }

    fn shared(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    fn log(&self) -> &Log {
        &self.log
    }

    fn append(&self, entries: &[NewEntry<'_>], callback: Callback) -> Result<()> {
        self.append_entries(entries, callback)
    }

    fn change(&self, change: &Change) -> Result<Lsn> {
        self.core().check()?;
        let mut order = self.order();
        let is_done = {
            let memory = self.core().memory();
            memory.state.check(change)?;
            memory.state.is_done(change)
        };
        let append = if is_done { None } else { Some(self.write(&mut order, change)?) };
        let vote_lsn = self.core().memory().vote_lsn;
        drop(order);
        match append {
            Some(append) => self.core().noted(append.wait())?,
            // It may have been done by a call that still waits.
            None => self.core().noted(self.log.sync())?,
        };
        Ok(vote_lsn)
    }

    fn change_then(&self, change: &Change, callback: Then<'_>) -> Result<()> {
        self.write_then(change, callback)
    }

    fn purge(&self, upto: &EntryId, is_snapshot: bool) -> Result<()> {
        self.core().check()?;
        let change = Change::Purge { upto: upto.clone(), is_snapshot };
        let mut order = self.order();
        let is_done = {
            let memory = self.core().memory();
            memory.state.check(&change)?;
            memory.state.is_done(&change)
        };
        if is_done {
            drop(order);
            self.core().noted(self.log.sync())?;
        } else {
            let mut written = self.write(&mut order, &change);
            // On a full disk the segments come first. What an opening then takes for purged is
            // committed, or the snapshot has it, and it was asked for.
            if matches!(written, Err(Error::Log(inkstone::Error::NoRoom { .. }))) {
                let first = self.core().memory().state.first_kept_without_record(upto, is_snapshot);
                if self.release(first)? {
                    written = self.write(&mut order, &change);
                }
            }
            let append = written?;
            drop(order);
            // The purge and every state before it are durable before the log gives up what they
            // replace.
            self.core().noted(append.wait())?;
        }
        let first = self.core().memory().state.first;
        self.release(first).map(|_| ())
    }

    fn save_committed(&self, index: u64) -> Result<()> {
        self.core().check()?;
        let _order = self.order();
        self.core().memory().save_committed(index)
    }

    fn sync(&self) -> Result<()> {
        self.core().check()?;
        self.core().noted(self.log.sync()).map(|_| ())
    }

    fn close(&self) -> Result<()> {
        let synced = self.sync_committed();
        let closed = self.core().noted(self.log.close());
        self.core().close();
        synced.and(closed)
    }
}

impl Order {
    /// Releases the memory that one large append took.
    fn forget_large(&mut self) {
        const KEPT_BYTES: usize = 1 << 20;
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
            self.ends = Vec::new();
            self.payloads = Vec::new();
        }
    }
}

/// The right to write. When it ends, the listener gets the events of meanwhile, and callbacks are
/// called that became due.
struct Turn<'a> {
    order: Option<MutexGuard<'a, Order>>,
    callbacks: &'a Callbacks,
}

impl std::ops::Deref for Turn<'_> {
    type Target = Order;

    fn deref(&self) -> &Order {
        self.order.as_ref().expect("it is there until the end")
    }
}

impl std::ops::DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut Order {
        self.order.as_mut().expect("it is there until the end")
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let kept = self.callbacks.end_write();
        self.order = None;
        kept.into_iter().for_each(run);
        self.callbacks.call();
    }
}
