//! What a schedule is about: the log's options, what was there before, how many threads, and what
//! each does.
//!
//! *Owns*: drawing all of it from a seed. *May not touch*: carrying it out.

use std::time::Duration;

use fastrand::Rng;
use inkstone::{Access, Durability, Options, Preparation};
use inkstone_sim::{AfterEffect, Effect, Fault, OperationKind, errno};

use crate::tasks::Habit;

#[derive(Debug, Clone, Copy)]
pub enum Op {
    Append(usize),
    /// Append, and keep the handle until the end.
    Keep(usize),
    /// Wait for what was kept.
    WaitForKept,
    LetGo(usize),
    Batch(usize, usize),
    Try(usize),
    AppendAsync(usize),
    Await(usize, Habit),
    /// Append, poll here, and await on another thread with another waker.
    HandOver(usize, Habit),
    Cancel(usize, Habit),
    /// Append, and await on a thread that does not hold the log.
    AwaitBeside(usize),
    /// Append, let go, and await the LSN; or poll once, and drop the future.
    AwaitLsn(usize, bool),
    Call(usize),
    /// Append, and leave a callback that appends and waits.
    CallAndWait(usize),
    Sync,
    /// So many records less.
    CutAfter(u64),
    /// So many records before the last.
    GiveUpBefore(u64),
    /// Read on to the end, with the thread's own cursor.
    ReadOn,
    /// A record by its LSN: so many before the last.
    Get(u64),
    Fork,
    LeaveLog,
}

/// How the log was left that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Nothing,
    Few,
    NearlyFull,
    /// There are several segments.
    Several,
}

impl Before {
    pub const ALL: [Self; 4] = [Self::Nothing, Self::Few, Self::NearlyFull, Self::Several];
}

/// How the log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Close,
    Drop,
    /// As a killed process would.
    Abandon,
    /// In a forked child, where nothing else was left.
    InChild,
}

/// When a listener panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    None,
    Asks,
    /// It holds every segment that is sealed, and looks at its file again at the end.
    Archives,
    Panics,
}

/// Puts in what came later: drawn by itself, so that a seed stays the history that it was.
fn put_in(rng: &mut Rng, threads: &mut [Vec<Op>]) {
    // Who awaits an LSN that was cut meanwhile awaits another record, or waits for ever.
    let has_cuts = threads.iter().flatten().any(|op| matches!(op, Op::CutAfter(_)));
    for op in threads.iter_mut().flatten() {
        match *op {
            Op::Append(bytes)
            | Op::Await(bytes, Habit::Plain)
            | Op::Cancel(bytes, Habit::Plain)
                if !has_cuts && rng.u8(..4) == 0 =>
            {
                *op = Op::AwaitLsn(bytes, rng.u8(..3) == 0);
            }
            Op::Call(bytes) | Op::LetGo(bytes) if rng.u8(..3) == 0 => *op = Op::CallAndWait(bytes),
            _ => {}
        }
    }
}

/// See the head of this file.
#[derive(Debug)]
pub struct Setup {
    pub options: Options,
    pub has_own_thread: bool,
    pub before: Before,
    pub is_periodic: bool,
    pub fault: Option<Fault>,
    pub listener: Listener,
    pub threads: Vec<Vec<Op>>,
    pub followers: usize,
    /// They are tasks that await each record.
    pub followers_await: bool,
    pub end: End,
    /// The main thread lets go of the log while others use it.
    pub leaves_early: bool,
    pub has_panics: bool,
}

/// What a history is mostly made of.
#[derive(Debug, Clone, Copy)]
enum Taste {
    Mixed,
    Waiting,
    Futures,
    Cuts,
    Reading,
    Full,
    /// One thread cuts and appends, the others ask for the records there.
    Beside,
}

impl Taste {
    const ALL: [Self; 7] = [
        Self::Mixed,
        Self::Waiting,
        Self::Futures,
        Self::Cuts,
        Self::Reading,
        Self::Full,
        Self::Beside,
    ];
}

/// The options that a log which was there before was made with.
pub fn plain() -> Options {
    in_small_files(Options::small())
}

fn in_small_files(options: Options) -> Options {
    options
        .segment_bytes(64 << 10)
        .record_bytes_max(32 << 10)
        .buffer_bytes(8 << 10)
        .own_thread(false)
        .access(Access::Buffered)
        .preparation(Preparation::Fallocate)
}

fn options(rng: &mut Rng, taste: Taste) -> (Options, bool, bool) {
    let mut has_own_thread = rng.u8(..4) > 0;
    let is_full = matches!(taste, Taste::Full);
    let mut options = if rng.u8(..if is_full { 4 } else { 24 }) == 0 {
        // Another thread prepares its segments.
        has_own_thread = true;
        in_small_files(Options::new()).tail_bytes(256 << 10).free_segments_max(0)
    } else {
        plain()
    };
    if rng.u8(..4) == 0 {
        options = options.access(Access::Direct);
        // Else it is tried, since the disk says that it has a volatile cache and FUA.
        if rng.clone().fork().bool() {
            options = options.durability(Durability::RwfDsync);
        }
    }
    if rng.bool() {
        options = options.free_segments_max(2);
    }
    if rng.u8(..8) == 0 {
        options = options.pad_groups(true);
    }
    if rng.u8(..8) == 0 {
        options = options.preparation(Preparation::Zeros);
    }
    if rng.u8(..4) == 0 {
        options = options.slow_commit(Duration::ZERO);
    }
    let is_periodic = rng.u8(..12) == 0;
    if is_periodic {
        has_own_thread = true;
        options = options.periodic(Duration::from_millis(1));
    }
    (options.own_thread(has_own_thread), has_own_thread, is_periodic)
}

fn size(rng: &mut Rng, taste: Taste) -> usize {
    match (taste, rng.u8(..12)) {
        (Taste::Full, 0..=5) => rng.usize(2500..5000),
        (_, 0) => rng.usize(3000..9000),
        (_, 1) => rng.usize(200..3000),
        _ => rng.usize(20..120),
    }
}

fn habit(rng: &mut Rng, has_panics: bool) -> Habit {
    match rng.u8(..10) {
        0..=2 => Habit::Plain,
        3..=5 => Habit::Asks,
        6 | 7 => Habit::PollsInline,
        8 => Habit::LetsGo,
        _ if has_panics => Habit::Panics,
        _ => Habit::Plain,
    }
}

fn op(rng: &mut Rng, taste: Taste, has_panics: bool) -> Op {
    let size = |rng: &mut Rng| size(rng, taste);
    let kind = match (taste, rng.bool()) {
        _ if rng.u8(..24) == 0 => return Op::Fork,
        (Taste::Waiting, true) => rng.u8(..6),
        (Taste::Futures, true) => rng.u8(20..30),
        (Taste::Cuts, true) => rng.u8(30..41),
        (Taste::Reading, true) => rng.u8(36..42),
        (Taste::Full, true) => [rng.u8(6..16), 41][usize::from(rng.u8(..4) == 0)],
        _ => rng.u8(..44),
    };
    match kind {
        0..=5 => Op::Append(size(rng)),
        6..=8 => Op::Keep(size(rng)),
        9 | 10 => Op::WaitForKept,
        11 | 12 => Op::LetGo(size(rng)),
        13 | 14 => Op::Batch(rng.usize(2..5), size(rng).min(2000)),
        15..=17 => Op::Try(size(rng)),
        18 | 19 => Op::AppendAsync(size(rng)),
        20..=23 => Op::Await(size(rng), habit(rng, has_panics)),
        24 | 25 => Op::HandOver(size(rng), habit(rng, has_panics)),
        26 | 27 => Op::Cancel(size(rng), habit(rng, has_panics)),
        28 => Op::AwaitBeside(size(rng)),
        29 => Op::Call(size(rng)),
        30..=33 => Op::CutAfter(rng.u64(..4)),
        34 | 35 => Op::Append(size(rng)),
        36..=38 => Op::ReadOn,
        39 | 40 => Op::Get(rng.u64(..4)),
        41 => Op::GiveUpBefore(rng.u64(..5)),
        42 => Op::Sync,
        _ => Op::LeaveLog,
    }
}

fn beside(rng: &mut Rng, cuts: bool, length: usize) -> Vec<Op> {
    let op = |index| match (cuts, index % 2) {
        (true, 0) => Op::CutAfter(rng.u64(1..3)),
        (true, _) => Op::Append(rng.usize(20..120)),
        (false, _) if rng.u8(..4) > 0 => Op::Get(rng.u64(..2)),
        (false, _) => Op::ReadOn,
    };
    (0..length).map(op).collect()
}

pub fn fault(rng: &mut Rng) -> Fault {
    let after = AfterEffect::ALL[rng.usize(..2) * 2];
    let fault = match rng.u8(..4) {
        0 => Fault::new(Effect::ShortThenError(rng.usize(..600), errno::EIO))
            .on(OperationKind::Write),
        1 => Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Write),
        _ => Fault::new(Effect::SyncFails(errno::EIO, after)).on(OperationKind::Sync),
    };
    fault.nth(rng.u64(1..6))
}

impl Setup {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x6869_7374_6F72_7921);
        let rng = &mut rng;
        let taste = Taste::ALL[rng.usize(..Taste::ALL.len())];
        let (options, has_own_thread, is_periodic) = options(rng, taste);
        // Buffers of 16 KiB fit in, and chunks have 4 KiB: groups are copied, handed over and
        // dropped.
        let options = options.tail_bytes(if seed.is_multiple_of(3) { 0 } else { 64 << 10 });
        let before = match taste {
            Taste::Full => [Before::NearlyFull, Before::Several][rng.usize(..2)],
            Taste::Beside => [Before::Few, Before::Several][rng.usize(..2)],
            _ => Before::ALL[rng.usize(..4)],
        };
        let has_panics = rng.u8(..8) == 0;
        let listener = match rng.u8(..8) {
            0 | 1 => Listener::Asks,
            3 | 4 if matches!(taste, Taste::Full) => Listener::Archives,
            2 if has_panics => Listener::Panics,
            _ => Listener::None,
        };
        let count = [2, 2, 2, 3, 3, 4][rng.usize(..6)];
        let threads = (0..count).map(|number| {
            let length = rng.usize(2..=6_usize.saturating_sub(count).max(3));
            if matches!(taste, Taste::Beside) {
                return beside(rng, number == 0, length);
            }
            (0..length).map(|_| op(rng, taste, has_panics)).collect()
        });
        let mut threads: Vec<_> = threads.collect();
        let mut later = Rng::with_seed(seed ^ 0x7761_7465_726D_6172);
        put_in(&mut later, &mut threads);
        let followers = [0, 0, 0, 1, 1, 2][rng.usize(..6)];
        let end = match [End::Close, End::Close, End::Drop, End::Abandon][rng.usize(..4)] {
            // The log's own thread, and followers, would be left to themselves there.
            End::Drop if !has_own_thread && followers == 0 => End::InChild,
            end => end,
        };
        Self {
            options,
            has_own_thread,
            before,
            is_periodic,
            fault: (rng.u8(..6) == 0).then(|| fault(rng)),
            listener,
            threads,
            followers,
            followers_await: later.bool(),
            end,
            leaves_early: rng.u8(..4) == 0,
            has_panics,
        }
    }
}
