//! Several threads that append to one log, and power cuts while they do.
//!
//! *Owns*: what each thread appends, and which events came before which cut. *May not touch*: the
//! order in which they come; what may be found.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inkstone::Log;
use inkstone_io::AnyDirectory;
use inkstone_sim::{PowerCut, SimDisk};

use super::PATH;
use super::variant::Variant;
use super::walk::Walk;
use super::way::Way;
use inkstone_subject::log::LogSubject;
use inkstone_subject::log::history::Op;
use inkstone_subject::log::past::{Callers, Past};
use inkstone_subject::log::words::{Call, Told};
use inkstone_subject::{Broken, Past as _, Shown as _, Subject as _, Who};

const THREADS: Who = 4;
const APPENDS: u32 = 90;
const CUTS_MAX: usize = 300;

enum Event {
    Began(Who, Call),
    Ended(Who, Told),
}

/// What was begun, and each event with how many epochs of the disk were recorded then.
struct Said {
    begun: Past,
    events: Vec<(u64, Event)>,
}

fn lock(said: &Mutex<Said>) -> MutexGuard<'_, Said> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread's appends: with a wait for each, without a wait, or as batches of two.
fn append_all(disk: &SimDisk, subject: &LogSubject, log: &Log, who: Who, said: &Mutex<Said>) {
    let mut rng = fastrand::Rng::with_seed(u64::from(who) ^ 0x7468_7265_6164_7321);
    for number in 0..APPENDS {
        let mut size = || rng.usize(16..1200);
        let op = match number % 5 {
            2 => Op::LetGo(size()),
            3 => Op::Batch(vec![size(), size()]),
            _ => Op::Append(size()),
        };
        let call = {
            let mut said = lock(said);
            let call = op.plan(&said.begun);
            said.begun.began(who, &call);
            said.events.push((disk.epochs_recorded(), Event::Began(who, call.clone())));
            call
        };
        let told = subject.apply(log, &call);
        lock(said).events.push((disk.epochs_recorded(), Event::Ended(who, told)));
    }
}

/// Runs the threads; their power cuts, with what was promised at each, are walked.
pub(crate) fn run(seed: u64, variant: &Variant, way: Way) -> Result<Walk<LogSubject>, Broken> {
    let disk = SimDisk::new(seed, variant.disk);
    disk.record_epochs();
    let mut threaded = variant.log.clone();
    threaded.options = threaded.options.own_thread(true);
    let mut past = Past::new(Callers::Many);
    let log = match threaded.open_in(AnyDirectory::new(disk.directory(PATH)), None) {
        Ok(log) => log,
        Err(shown) => {
            return past.check(&shown).and(Err(Broken::new("opens", shown.brief())));
        }
    };
    let said = Mutex::new(Said { begun: past.clone(), events: Vec::new() });
    let mut cuts: Vec<PowerCut> = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (disk, log, said, subject) = (&disk, &log, &said, &threaded);
                scope.spawn(move || append_all(disk, subject, log, thread, said))
            })
            .collect();
        // A thread that panics is finished too: a mistake may show itself so.
        while threads.iter().any(|thread| !thread.is_finished()) {
            if cuts.len() < CUTS_MAX {
                cuts.push(disk.power_cut());
            }
            std::thread::yield_now();
        }
        let mut ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.try_for_each(|ended| {
            ended.map_err(|_| Broken::new("panic", "a thread that appends panics"))
        })
    })?;
    log.abandon();
    cuts.extend(disk.take_epochs());
    cuts.push(disk.power_cut());
    cuts.sort_by_key(PowerCut::epoch);
    let mut events = said.into_inner().unwrap_or_else(PoisonError::into_inner).events;
    let mut events = events.drain(..).peekable();
    let mut told = Vec::new();
    for cut in cuts {
        while let Some((_, event)) = events.next_if(|(epochs, _)| *epochs <= cut.epoch()) {
            match event {
                Event::Began(who, call) => past.began(who, &call),
                Event::Ended(who, answer) => past.ended(who, &answer, false)?,
            }
        }
        told.push((cut, Arc::new(past.clone())));
    }
    Ok(Walk::of_cuts(variant.log.clone(), disk, past, told, way, seed))
}
