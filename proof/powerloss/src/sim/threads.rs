//! Several threads that append to one log, and power cuts while they do.
//!
//! *Owns*: what each thread appends, and what was acknowledged when. *May not touch*: the order in
//! which they come; the rule ([`inkstone_sim::survival`]).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inkstone::Log;
use inkstone_sim::survival::{InOrder, Writer, Writers};
use inkstone_sim::{PowerCut, SimDisk};

use super::explore::{PATH, open};
use super::variant::Variant;
use crate::mistake::open_in;
use crate::verdict::read_all;

const THREADS: u8 = 4;
const APPENDS: u32 = 60;
const CUTS_MAX: usize = 300;

/// A record that was acknowledged when this many epochs were recorded.
#[derive(Debug, Clone, Copy)]
struct Ack {
    epochs: u64,
    lsn: u64,
    thread: u8,
    number: u32,
}

fn payload(thread: u8, number: u32) -> Vec<u8> {
    let length = 5 + (number as usize * 331 + usize::from(thread) * 97) % 3000;
    let mut bytes = vec![thread; length];
    bytes[1..5].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn author(bytes: &[u8]) -> Option<(u8, u32)> {
    let number = u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?);
    (payload(bytes[0], number) == bytes).then_some((bytes[0], number))
}

/// One thread's appends: with a wait for each, without a wait, or as batches of two.
fn append_all(
    disk: &SimDisk,
    log: &Log,
    thread: u8,
    acks: &Mutex<Vec<Ack>>,
) -> inkstone::Result<()> {
    let mut number = 0;
    while number < APPENDS {
        let (lsn, last) = match number % 5 {
            1 => {
                drop(log.append(&payload(thread, number))?);
                number += 1;
                continue;
            }
            3 => {
                let batch = [payload(thread, number), payload(thread, number + 1)];
                (log.append_batch(&batch)?.wait()?, number + 1)
            }
            _ => (log.append(&payload(thread, number))?.wait()?, number),
        };
        let epochs = disk.epochs_recorded();
        lock(acks).push(Ack { epochs, lsn: lsn.get(), thread, number: last });
        number = last + 1;
    }
    Ok(())
}

fn lock(acks: &Mutex<Vec<Ack>>) -> MutexGuard<'_, Vec<Ack>> {
    acks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the threads have said by this epoch.
fn writers(acks: &[Ack], epoch: u64) -> Writers {
    let joined = (0..APPENDS).filter(|number| number % 5 == 4).collect();
    let writer = Writer { begun: APPENDS, joined, ..Writer::default() };
    let mut writers: Writers =
        (0..THREADS).map(|thread| (u32::from(thread), writer.clone())).collect();
    for ack in acks.iter().filter(|ack| ack.epochs <= epoch) {
        if let Some(writer) = writers.get_mut(&u32::from(ack.thread)) {
            writer.certain = writer.certain.max(ack.number + 1);
        }
    }
    writers
}

/// Checks that the log has every record that was acknowledged by then, and of each thread a prefix.
fn check(found: &SimDisk, variant: &Variant, acks: &[Ack], epoch: u64) -> Result<(), String> {
    let log = open(found, variant).map_err(|error| format!("the log does not open: {error}"))?;
    let writers = writers(acks, epoch);
    let mut order = InOrder::new(&writers, true);
    let mut shown = Vec::new();
    read_all(&log, 1, |lsn, bytes| {
        let (thread, number) =
            author(bytes).ok_or_else(|| format!("LSN {lsn} holds bytes that nobody appended"))?;
        shown.push((thread, number));
        order
            .take(u32::from(thread), number)
            .map_err(|why| format!("LSN {lsn} is record {number} of thread {thread}, {why}"))
    })?;
    order.finish(false)?;
    for ack in acks.iter().filter(|ack| ack.epochs <= epoch) {
        if shown.get(ack.lsn as usize - 1) != Some(&(ack.thread, ack.number)) {
            return Err(format!("{ack:?} is not among the {} found at epoch {epoch}", shown.len()));
        }
    }
    log.append_durable(b"on it goes").map_err(|error| error.to_string())?;
    log.abandon();
    Ok(())
}

/// Runs the threads; returns how many states were checked.
pub fn run(seed: u64, variant: &Variant, samples: u64) -> Result<u64, String> {
    let disk = SimDisk::new(seed, variant.disk);
    disk.record_epochs();
    let threaded = variant.options.clone().own_thread(true).linger(Duration::from_micros(50));
    let log = open_in(disk.directory(PATH), threaded, variant.mistake)
        .map_err(|error| error.to_string())?;
    let acks = Mutex::new(Vec::new());
    let mut cuts: Vec<PowerCut> = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (disk, log, acks) = (&disk, &log, &acks);
                scope.spawn(move || append_all(disk, log, thread, acks))
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
    let acks = lock(&acks).clone();
    let mut states = 0;
    for (number, cut) in cuts.iter().enumerate() {
        for sample in 0..samples {
            let found = cut.sample(seed ^ (sample << 40) ^ ((number as u64) << 20));
            check(&found, variant, &acks, cut.epoch())?;
            states += 1;
        }
    }
    Ok(states)
}
