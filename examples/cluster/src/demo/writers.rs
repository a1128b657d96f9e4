//! Clients that write, and remember what they were told of each write.
//!
//! *Owns*: what was acknowledged, and whether it is there in the end. *May not touch*: the nodes.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use replicated_log::client::{Client, ClientOptions, Outcome};
use replicated_log::transport::Transport;
use tokio::sync::watch;
use tokio::task::JoinSet;

const WRITERS: usize = 4;
/// A write, then a pause: people watch.
const PAUSE: Duration = Duration::from_millis(5);

/// Clients, each with a key of its own, to which it appends numbers.
pub(crate) struct Writers(Vec<Writer>);

/// What became of the writes of one step.
#[derive(Default)]
pub(crate) struct Tally {
    done: usize,
    not_done: usize,
    unknown: usize,
    /// The longest time from a write to its answer, of those that are done.
    longest: Duration,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} writes are acknowledged; the slowest took {} ms.",
            self.done,
            self.longest.as_millis()
        )?;
        if self.unknown > 0 {
            write!(
                f,
                " {} unknown: sent, and not answered. They may have happened, and are not sent again.",
                self.unknown
            )?;
        }
        if self.not_done > 0 {
            write!(f, " {} not done, for certain.", self.not_done)?;
        }
        Ok(())
    }
}

impl Writers {
    pub(crate) fn new(servers: &[String]) -> Self {
        Self((1..=WRITERS).map(|number| Writer::new(number, servers)).collect())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Writes; when `count` writes are acknowledged, does something beside it, and goes on until
    /// `count` more are.
    pub(crate) async fn write<T>(
        &mut self,
        count: u64,
        meanwhile: impl Future<Output = Result<T, String>>,
    ) -> Result<(Tally, T), String> {
        let (counted, mut done) = watch::channel(0_u64);
        let (counted, until) = (Arc::new(counted), Arc::new(AtomicU64::new(u64::MAX)));
        let mut tasks = JoinSet::new();
        for mut writer in self.0.drain(..) {
            let (counted, until) = (Arc::clone(&counted), Arc::clone(&until));
            tasks.spawn(async move {
                let tally = writer.write(&counted, &until).await;
                (writer, tally)
            });
        }
        let ended = |why: watch::error::RecvError| format!("the clients ended: {why}");
        done.wait_for(|done| *done >= count).await.map_err(ended)?;
        let came = meanwhile.await?;
        until.store(*done.borrow() + count, Ordering::Relaxed);
        let mut sum = Tally::default();
        while let Some(joined) = tasks.join_next().await {
            let (writer, tally) = joined.map_err(|why| format!("a client ended: {why}"))?;
            self.0.push(writer);
            sum.done += tally.done;
            sum.not_done += tally.not_done;
            sum.unknown += tally.unknown;
            sum.longest = sum.longest.max(tally.longest);
        }
        Ok((sum, came))
    }

    /// Compares what is there with what the clients were told.
    ///
    /// # Errors
    /// When something acknowledged is not there, or something is there that must not be.
    pub(crate) async fn check(&mut self) -> Result<String, String> {
        let (mut done, mut unknown, mut happened) = (0, 0, 0);
        for writer in &mut self.0 {
            happened += writer.check().await?;
            done += writer.done.len();
            unknown += writer.unknown.len();
        }
        let mut found = format!("All {done} acknowledged writes are in it, once, in order.");
        if unknown > 0 {
            found.push_str(&format!(" Of the {unknown} unknown, {happened} happened."));
        }
        Ok(found)
    }
}

struct Writer {
    client: Client,
    key: String,
    next: u64,
    done: Vec<u64>,
    unknown: Vec<u64>,
}

impl Writer {
    fn new(number: usize, servers: &[String]) -> Self {
        let client = Client::new(servers.to_vec(), Transport::tcp(), ClientOptions::default());
        Self {
            client,
            key: format!("writer-{number}"),
            next: 0,
            done: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// Appends number after number until all writers together have so many done.
    async fn write(&mut self, counted: &watch::Sender<u64>, until: &AtomicU64) -> Tally {
        let mut tally = Tally::default();
        while *counted.borrow() < until.load(Ordering::Relaxed) {
            let (number, began) = (self.next, Instant::now());
            self.next += 1;
            match self.client.append(self.key.clone(), number.to_string()).await {
                Outcome::Done(_) => {
                    self.done.push(number);
                    tally.done += 1;
                    tally.longest = tally.longest.max(began.elapsed());
                    counted.send_modify(|done| *done += 1);
                }
                Outcome::NotDone(_) => tally.not_done += 1,
                Outcome::Unknown(_) => {
                    self.unknown.push(number);
                    tally.unknown += 1;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        tally
    }

    /// How many of the unknown writes happened.
    async fn check(&mut self) -> Result<usize, String> {
        let key = &self.key;
        let value = match self.client.get(key.clone()).await {
            Outcome::Done(value) => value.unwrap_or_default(),
            Outcome::NotDone(why) | Outcome::Unknown(why) => {
                return Err(format!("{key} could not be read: {why}"));
            }
        };
        let numbers = value.iter().map(|piece| std::str::from_utf8(piece).ok()?.parse().ok());
        let there: Vec<u64> = numbers
            .collect::<Option<_>>()
            .ok_or_else(|| format!("{key} has something that nobody wrote"))?;
        if !there.is_sorted_by(|one, next| one < next) {
            return Err(format!("{key} has a write twice, or out of order: {there:?}"));
        }
        if let Some(lost) = self.done.iter().find(|number| there.binary_search(number).is_err()) {
            return Err(format!("write {lost} to {key} was acknowledged, and is not there"));
        }
        let extra: Vec<_> =
            there.iter().filter(|number| self.done.binary_search(number).is_err()).collect();
        match extra.iter().find(|number| self.unknown.binary_search(number).is_err()) {
            Some(number) => {
                Err(format!("write {number} to {key} was said not to have happened, and is there"))
            }
            None => Ok(extra.len()),
        }
    }
}
