//! Clients: each asks one thing after the other and writes down what it heard.
//!
//! *Owns*: what is asked, and how fast. *May not touch*: faults; what an answer means.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::history::{Call, Heard, History};

/// An operation that takes longer is unknown, whatever becomes of it.
const LONGEST: Duration = Duration::from_secs(6);
/// Between two reads that were not answered.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// How a client reaches the cluster.
pub trait Door: Send + 'static {
    /// Asks once. A write is never sent again by whoever implements this if it may have happened.
    fn ask(&mut self, call: Call) -> impl Future<Output = Heard> + Send;
}

/// What clients do in a round.
#[derive(Debug, Clone)]
pub struct Load {
    /// How many clients.
    pub clients: u32,
    /// The keys of this round.
    pub keys: Vec<String>,
    /// The mean pause between an answer and the next call.
    pub pause: Duration,
    /// Decides who asks what.
    pub seed: u64,
}

/// Starts the clients of a round on the current runtime. They end after `stop` is set.
pub fn start<D: Door>(
    load: &Load,
    history: &Arc<History>,
    stop: &Arc<AtomicBool>,
    door: impl Fn(u32) -> D,
) -> Vec<tokio::task::JoinHandle<()>> {
    let client = |number: u32| {
        let (load, history, stop) = (load.clone(), Arc::clone(history), Arc::clone(stop));
        tokio::spawn(work(number, door(number), load, history, stop))
    };
    (0..load.clients).map(client).collect()
}

async fn work<D: Door>(
    number: u32,
    mut door: D,
    load: Load,
    history: Arc<History>,
    stop: Arc<AtomicBool>,
) {
    let mut rng = fastrand::Rng::with_seed(load.seed ^ u64::from(number).wrapping_mul(0x9E37_79B9));
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        let key = load.keys[rng.usize(..load.keys.len())].clone();
        // No two writes have the same value: a read says which of them it has seen.
        let value = format!("{number}.{count}");
        let call = match rng.u8(..16) {
            0..=1 => Call::Put { key, value },
            2..=8 => Call::Append { key, value },
            _ => Call::Get { key },
        };
        ask(number, &mut door, call, &history).await;
        let most_us = 2 * load.pause.as_micros() as u64;
        tokio::time::sleep(Duration::from_micros(rng.u64(..=most_us))).await;
    }
}

async fn ask<D: Door>(client: u32, door: &mut D, call: Call, history: &History) -> Heard {
    let operation = history.invoke(client, &call);
    let heard = tokio::time::timeout(LONGEST, door.ask(call)).await.unwrap_or(Heard::Unknown);
    history.complete(client, operation, &heard);
    heard
}

/// Reads each key until it is answered.
///
/// # Errors
/// A key was not answered within `time`: the cluster did not come back.
pub async fn read_all<D: Door>(
    client: u32,
    mut door: D,
    keys: &[String],
    history: &History,
    time: Duration,
) -> Result<(), String> {
    let start = Instant::now();
    for key in keys {
        loop {
            let heard = ask(client, &mut door, Call::Get { key: key.clone() }, history).await;
            if matches!(heard, Heard::Done(_)) {
                break;
            }
            if start.elapsed() > time {
                return Err(format!("no answer to a read of {key} for {time:?}"));
            }
            tokio::time::sleep(READ_AGAIN_AFTER).await;
        }
    }
    Ok(())
}

/// A mistake that clients make: a write of which nothing is known is sent again, as if it had not
/// happened.
pub struct Blindly<D>(pub D);

impl<D: Door> Door for Blindly<D> {
    async fn ask(&mut self, call: Call) -> Heard {
        for _ in 0..8 {
            match self.0.ask(call.clone()).await {
                Heard::Done(found) => return Heard::Done(found),
                Heard::Unknown | Heard::NotDone => {}
            }
        }
        Heard::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every third call is not answered; appends are counted all the same.
    struct Counter(Arc<std::sync::atomic::AtomicU64>, u64);

    impl Door for Counter {
        async fn ask(&mut self, call: Call) -> Heard {
            self.1 += 1;
            if matches!(call, Call::Append { .. }) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
            if self.1.is_multiple_of(3) { Heard::Unknown } else { Heard::Done(None) }
        }
    }

    #[tokio::test]
    async fn clients_write_down_all_and_only_the_blind_one_asks_again() {
        let path = std::env::temp_dir().join(format!("inkstone-workload-{}", std::process::id()));
        let history = Arc::new(History::create(&path).expect("a file"));
        let asked = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let load =
            Load { clients: 3, keys: vec!["a".into(), "b".into()], pause: Duration::ZERO, seed: 1 };
        let clients = start(&load, &history, &stop, |_| Counter(Arc::clone(&asked), 0));
        while history.counts().all() < 300 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.expect("it ends");
        }
        history.finish().expect("written");
        let text = std::fs::read_to_string(&path).expect("the history");
        std::fs::remove_file(&path).expect("removed");
        let appends =
            text.lines().filter(|line| line.contains("\"call\":\"append\"")).count() as u64;
        assert_eq!(asked.load(Ordering::Relaxed), appends, "each was sent once");
        let (counts, lines) = (history.counts(), text.lines().count() as u64);
        assert_eq!(lines, 2 * counts.all());
        assert!(counts.unknown > 50 && counts.done > counts.unknown, "{counts:?}");
        let blind = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let mut door = Blindly(Counter(Arc::clone(&blind), 2));
        let call = Call::Append { key: "a".into(), value: "x".into() };
        assert_eq!(door.ask(call).await, Heard::Done(None));
        assert_eq!(blind.load(Ordering::Relaxed), 2);
    }
}
