//! Faults by plan: what goes wrong at which operation, and the history of what went wrong.
//!
//! *Owns*: matching operations with plans, drawing faults by their rates. *May not touch*: carrying
//! a fault out; the operation itself does that.

use std::fmt;
use std::sync::Arc;

use crate::options::{AfterEffect, DiskOptions};

/// The error numbers that a simulated disk returns, as on Linux.
pub mod errno {
    pub const ENOENT: i32 = 2;
    pub const EIO: i32 = 5;
    pub const EBADF: i32 = 9;
    pub const EEXIST: i32 = 17;
    pub const EINVAL: i32 = 22;
    pub const EFBIG: i32 = 27;
    pub const ENOSPC: i32 = 28;
}

/// The operations that a fault can be planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationKind {
    Open,
    Create,
    /// Renaming a file; it is known by its old name.
    Rename,
    Remove,
    List,
    SyncDirectory,
    Read,
    /// A write: one of a request, or one piece of zeros of a preparation.
    Write,
    /// A sync of a file, also the one that is part of a request or a preparation.
    Sync,
    Allocate,
    Resize,
    /// A change of a file's time stamp, made to see whether it is allowed.
    Touch,
    Lock,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The operation fails with this error number without doing anything. A sync that fails this
    /// way has the after-effect [`AfterEffect::KeepsNew`].
    Error(i32),
    /// A sync fails with this error number and leaves this behind.
    SyncFails(i32, AfterEffect),
    /// A read or write is done in two parts, the first of this many bytes. Callers of the seam do
    /// not see that.
    Short(usize),
    /// A sync is acknowledged and makes nothing durable; the next one covers what it left out.
    LostSync,
    /// A write puts this many bytes into the cache, then fails with this error number.
    ShortThenError(usize, i32),
    /// A write is acknowledged but never arrives on the device. A buffered one is still in the page
    /// cache.
    LostWrite,
    /// A write lands at `offset`, rounded down to a sector, of the file called `file` in the same
    /// directory; where none has that name, of the same file.
    Misdirected { file: Option<String>, offset: u64 },
}

impl Effect {
    fn fits(&self, kind: OperationKind) -> bool {
        match self {
            Self::Error(_) => true,
            Self::SyncFails(..) | Self::LostSync => kind == OperationKind::Sync,
            Self::Short(_) => matches!(kind, OperationKind::Read | OperationKind::Write),
            Self::ShortThenError(..) | Self::LostWrite | Self::Misdirected { .. } => {
                kind == OperationKind::Write
            }
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(code) => write!(f, "error {code}"),
            Self::SyncFails(code, after) => {
                write!(f, "error {code} with the after-effect {after:?}")
            }
            Self::Short(bytes) => write!(f, "done in two parts, the first of {bytes} bytes"),
            Self::ShortThenError(bytes, code) => write!(f, "error {code} after {bytes} bytes"),
            Self::LostWrite | Self::LostSync => write!(f, "lost"),
            Self::Misdirected { file: Some(file), offset } => {
                write!(f, "misdirected to byte {offset} of {file}")
            }
            Self::Misdirected { file: None, offset } => write!(f, "misdirected to byte {offset}"),
        }
    }
}

/// A fault by plan: the `nth` operation, counted from when it is injected, that is of its kind and
/// on its files.
#[derive(Debug, Clone)]
pub struct Fault {
    effect: Effect,
    kind: Option<OperationKind>,
    file: Option<String>,
    skip: u64,
    times: u64,
}

impl Fault {
    /// At the next operation of any kind that the effect fits, once.
    pub fn new(effect: Effect) -> Self {
        Self { effect, kind: None, file: None, skip: 0, times: 1 }
    }

    #[must_use]
    pub fn on(self, kind: OperationKind) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// Only on files whose name contains this (for operations on directories: the directory's
    /// path).
    #[must_use]
    pub fn file(self, part: &str) -> Self {
        Self { file: Some(part.to_owned()), ..self }
    }

    /// At the `nth` such operation; the first is 1.
    #[must_use]
    pub fn nth(self, nth: u64) -> Self {
        Self { skip: nth.saturating_sub(1), ..self }
    }

    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    fn matches(&self, kind: OperationKind, name: &str) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind)
            && self.effect.fits(kind)
            && self.file.as_deref().is_none_or(|part| name.contains(part))
    }
}

/// A fault that fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The number of the operation, the disk's first being 1.
    pub operation: u64,
    pub kind: OperationKind,
    /// On which file or directory.
    pub file: Arc<str>,
    pub effect: Effect,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, kind, file, effect } = self;
        write!(f, "operation {operation}, {kind:?} of {file}: {effect}")
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Plans {
    plans: Vec<Fault>,
}

impl Plans {
    /// # Panics
    /// If the effect cannot happen to operations of that kind.
    pub(crate) fn add(&mut self, fault: Fault) {
        if let Some(kind) = fault.kind {
            assert!(fault.effect.fits(kind), "{:?} cannot happen to {kind:?}", fault.effect);
        }
        self.plans.push(fault);
    }

    pub(crate) fn clear(&mut self) {
        self.plans.clear();
    }

    /// The effect for this operation, if one is planned. Every plan counts the operation; the first
    /// whose turn it is wins.
    pub(crate) fn due(&mut self, kind: OperationKind, name: &str) -> Option<Effect> {
        let mut due = None;
        for plan in &mut self.plans {
            if !plan.matches(kind, name) {
                continue;
            }
            if plan.skip > 0 {
                plan.skip -= 1;
            } else if due.is_none() && plan.times > 0 {
                plan.times -= 1;
                due = Some(plan.effect.clone());
            }
        }
        self.plans.retain(|plan| plan.times > 0);
        due
    }
}

/// Draws a fault by the rates. Draws nothing from `rng` for a rate of 0.
pub(crate) fn draw(
    options: &DiskOptions,
    rng: &mut fastrand::Rng,
    kind: OperationKind,
    len: usize,
) -> Option<Effect> {
    let rates = &options.rates;
    let mut happens = |ppm: u32| ppm > 0 && rng.u32(..1_000_000) < ppm;
    let effect = match kind {
        OperationKind::List => return None,
        OperationKind::Open
        | OperationKind::Lock
        | OperationKind::Rename
        | OperationKind::Remove
        | OperationKind::SyncDirectory => {
            happens(rates.directory_error_ppm).then_some(Effect::Error(errno::EIO))
        }
        OperationKind::Create if happens(rates.directory_error_ppm) => {
            Some(Effect::Error(errno::EIO))
        }
        OperationKind::Create | OperationKind::Allocate => {
            happens(rates.no_space_ppm).then_some(Effect::Error(errno::ENOSPC))
        }
        OperationKind::Resize | OperationKind::Touch => {
            happens(rates.write_error_ppm).then_some(Effect::Error(errno::EIO))
        }
        OperationKind::Read if happens(rates.read_error_ppm) => Some(Effect::Error(errno::EIO)),
        OperationKind::Read => happens(rates.short_ppm).then_some(Effect::Short(0)),
        OperationKind::Write if happens(rates.write_error_ppm) => {
            Some(Effect::ShortThenError(0, errno::EIO))
        }
        OperationKind::Write if happens(rates.no_space_ppm) => {
            Some(Effect::ShortThenError(0, errno::ENOSPC))
        }
        OperationKind::Write => happens(rates.short_ppm).then_some(Effect::Short(0)),
        OperationKind::Sync => happens(rates.sync_error_ppm)
            .then_some(Effect::SyncFails(errno::EIO, AfterEffect::KeepsNew)),
    };
    // A drawn fault gets its size and place from the seed too.
    effect.map(|effect| match effect {
        Effect::Short(_) => Effect::Short(rng.usize(..len.max(1))),
        Effect::ShortThenError(_, code) => Effect::ShortThenError(rng.usize(..=len), code),
        Effect::SyncFails(code, _) => {
            let after = options.after_effect.unwrap_or_else(|| AfterEffect::ALL[rng.usize(..3)]);
            Effect::SyncFails(code, after)
        }
        other => other,
    })
}
