//! Several threads that append to one log, and power cuts while they do.
//!
//! *Owns*: what each thread appends, and what was said when. *May not touch*: the order in which
//! they come; what the log promised them ([`crate::in_use::promised`]).

use std::sync::{Mutex, MutexGuard, PoisonError};

use inkstone::Log;
use inkstone_sim::{PowerCut, SimDisk};

use super::explore::{PATH, open};
use super::variant::Variant;
use crate::in_use::lines::{Call, Line, Made};
use crate::in_use::promised::{Promised, Shown};
use crate::in_use::usage::Id;
use crate::mistake::open_in;

const THREADS: u32 = 4;
const APPENDS: u32 = 120;
const CUTS_MAX: usize = 300;

/// Each line, and how many epochs of the disk were recorded then.
type Said = Mutex<Vec<(u64, Line)>>;

fn lock(said: &Said) -> MutexGuard<'_, Vec<(u64, Line)>> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread's appends: with a wait for each, without a wait, or as batches of two.
fn append_all(disk: &SimDisk, log: &Log, writer: u32, said: &Said) -> inkstone::Result<()> {
    let say = |line| {
        let epochs = disk.epochs_recorded();
        lock(said).push((epochs, line));
    };
    let mut number = 0;
    while number < APPENDS {
        let count = if number % 5 == 3 { 2 } else { 1 };
        let made = Made { writer, call: Call::Gather, number: u64::from(number), count };
        let payload = |number| Id { writer, number }.payload();
        let payloads: Vec<_> = (number..number + count).map(payload).collect();
        say(Line::Begin(made));
        let append = match &payloads[..] {
            [one] => log.append(one)?,
            batch => log.append_batch(batch)?,
        };
        say(Line::Done(made, append.lsn().get()));
        number += count;
        if number % 5 != 2 {
            let lsn = append.wait()?.get();
            let (call, number) = (Call::Wait, u64::from(number) - 1);
            say(Line::Done(Made { writer, call, number, count: 1 }, lsn));
        }
    }
    Ok(())
}

/// Runs the threads; returns how many states were checked.
pub(crate) fn run(seed: u64, variant: &Variant, samples: u64) -> Result<u64, String> {
    let disk = SimDisk::new(seed, variant.disk);
    disk.record_epochs();
    let threaded = variant.options.clone().own_thread(true);
    let log = open_in(disk.directory(PATH), threaded, variant.mistake)
        .map_err(|error| error.to_string())?;
    let said = Said::default();
    let mut cuts: Vec<PowerCut> = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (disk, log, said) = (&disk, &log, &said);
                scope.spawn(move || append_all(disk, log, thread, said))
            })
            .collect();
        // A thread that panics is finished too: a mistake may show itself so.
        while threads.iter().any(|thread| !thread.is_finished()) {
            if cuts.len() < CUTS_MAX {
                cuts.push(disk.power_cut());
            }
            std::thread::yield_now();
        }
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result.map_err(|error| format!("an append fails: {error}")),
            Err(_) => Err("a thread that appends panics".to_owned()),
        })
    })?;
    log.abandon();
    cuts.extend(disk.take_epochs());
    cuts.push(disk.power_cut());
    let mut said = said.into_inner().unwrap_or_else(PoisonError::into_inner);
    said.sort_by_key(|(epochs, _)| *epochs);
    let (epochs, lines): (Vec<_>, Vec<_>) = said.into_iter().unzip();
    let mut states = 0;
    for (number, cut) in cuts.iter().enumerate() {
        let heard = epochs.partition_point(|epochs| *epochs <= cut.epoch());
        let promised = Promised::by(&Shown::default(), &lines, heard);
        for sample in 0..samples {
            let found = cut.sample(seed ^ (sample << 40) ^ ((number as u64) << 20));
            let log =
                open(&found, variant).map_err(|error| format!("the log does not open: {error}"))?;
            promised.check(&log).map_err(|why| format!("at epoch {}: {why}", cut.epoch()))?;
            log.append_durable(b"on it goes").map_err(|error| error.to_string())?;
            log.abandon();
            states += 1;
        }
    }
    Ok(states)
}
