//! Topics of a broker in one log. A topic is a stream, the places of its consumers are the stream's
//! note, and retention truncates its front. All topics share every flush.
//!
//! *Owns*: the names of topics, and what a consumer remembers. *May not touch*: durability; the
//! streams see to that.
//!
//! ```text
//! cargo run -p example-topics -- DIR publish TOPIC           a message for each line of input
//! cargo run -p example-topics -- DIR consume TOPIC CONSUMER  prints what it has not had yet
//! cargo run -p example-topics -- DIR keep TOPIC COUNT        gives up all but the last messages
//! ```
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use inkstone_streams::{Batch, Options, Record, Streams};

/// The stream of names: its record with the number 7 is the name of topic 7.
const NAMES: u64 = 0;

struct Broker {
    streams: Streams,
    /// Topics by their names. Locked also while a note is changed, which is read first.
    topics: Mutex<BTreeMap<String, u64>>,
}

impl Broker {
    fn open(path: impl AsRef<Path>) -> Result<Self> {
        let streams = Streams::open(path, Options::new())?;
        if streams.bounds(NAMES).is_err() {
            streams.create(NAMES, 1)?.wait()?;
        }
        let mut topics = BTreeMap::new();
        for name in streams.reader().records(NAMES, 1) {
            let Record { number, bytes } = name?;
            topics.insert(String::from_utf8(bytes)?, number);
        }
        Ok(Self { streams, topics: Mutex::new(topics) })
    }

    fn topics(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn topic(&self, name: &str) -> Result<u64> {
        self.topics().get(name).copied().with_context(|| format!("there is no topic {name}"))
    }

    /// Publishes messages, in one topic or in many: all or none. Topics that are new are created.
    fn publish(&self, messages: &[(&str, &[u8])]) -> Result<()> {
        let mut topics = self.topics();
        let mut known = topics.clone();
        let mut batch = Batch::new();
        for (name, message) in messages {
            let next = known.len() as u64 + 1;
            let topic = *known.entry((*name).to_owned()).or_insert(next);
            if topic == next {
                batch.append_at(NAMES, topic, name.as_bytes()).create(topic, 1);
            }
            batch.append(topic, message);
        }
        let written = self.streams.apply(&batch)?;
        *topics = known;
        // Others publish meanwhile, and share the flush.
        drop(topics);
        Ok(written.wait()?)
    }

    /// Where the consumers of a topic are: the number that each has had, by name.
    fn places(&self, topic: u64) -> Result<BTreeMap<String, u64>> {
        let note = String::from_utf8(self.streams.reader().note(topic)?)?;
        let place = |line: &str| {
            let (name, had) = line.rsplit_once(' ').context("a name and a place")?;
            Ok((name.to_owned(), had.parse()?))
        };
        note.lines().map(place).collect()
    }

    /// Hands out what the consumer has not had yet, and remembers its place when `use_it` has
    /// succeeded: after a crash messages may be handed out again, and none is missed but by
    /// retention.
    fn consume(
        &self,
        topic: &str,
        consumer: &str,
        mut use_it: impl FnMut(&Record) -> Result<()>,
    ) -> Result<()> {
        let topic = self.topic(topic)?;
        let had = self.places(topic)?.get(consumer).copied().unwrap_or(0);
        let first = self.streams.bounds(topic)?.first;
        let mut last = None;
        for message in self.streams.reader().records(topic, first.max(had + 1)) {
            let message = message?;
            use_it(&message)?;
            last = Some(message.number);
        }
        let Some(last) = last else { return Ok(()) };
        let lock = self.topics();
        let mut places = self.places(topic)?;
        places.insert(consumer.to_owned(), last);
        let note: String = places.iter().map(|(name, had)| format!("{name} {had}\n")).collect();
        let written = self.streams.set_note(topic, note.as_bytes())?;
        drop(lock);
        Ok(written.wait()?)
    }

    /// Gives up all but the last messages of a topic, also those that a consumer has not had.
    fn keep(&self, topic: &str, count: u64) -> Result<()> {
        let topic = self.topic(topic)?;
        let next = self.streams.bounds(topic)?.next;
        Ok(self.streams.truncate_before(topic, next.saturating_sub(count))?.wait()?)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let [path, command, topic, rest @ ..] = &arguments[..] else { bail!("DIR COMMAND TOPIC ...") };
    let broker = Broker::open(path)?;
    match (*command, rest) {
        ("publish", []) => {
            for line in std::io::stdin().lock().lines() {
                broker.publish(&[(topic, line?.as_bytes())])?;
            }
        }
        ("consume", [consumer]) => broker.consume(topic, consumer, |message| {
            println!("{} {}", message.number, String::from_utf8_lossy(&message.bytes));
            Ok(())
        })?,
        ("keep", [count]) => broker.keep(topic, count.parse()?)?,
        _ => bail!("publish TOPIC, consume TOPIC CONSUMER, or keep TOPIC COUNT"),
    }
    Ok(broker.streams.close()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_consumer_has_every_message_that_retention_leaves() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let mut had: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut consume = |broker: &Broker, topic, consumer| {
            broker.consume(topic, consumer, |message| {
                let text = String::from_utf8(message.bytes.clone())?;
                had.entry(consumer).or_default().push(format!("{topic} {text}"));
                Ok(())
            })
        };
        for round in 0..3 {
            let broker = Broker::open(directory.path().join("broker"))?;
            std::thread::scope(|scope| {
                for topic in ["orders", "mail"] {
                    let broker = &broker;
                    scope.spawn(move || {
                        for number in 0..5 {
                            let text = format!("{round} {number}");
                            broker.publish(&[(topic, text.as_bytes())]).expect("published");
                        }
                    });
                }
            });
            broker.publish(&[("orders", b"both"), ("mail", b"both")])?;
            consume(&broker, "orders", "billing")?;
            assert!(broker.consume("orders", "broken", |_| bail!("it cannot")).is_err());
            broker.keep("orders", 2)?;
            if round == 2 {
                consume(&broker, "orders", "late")?;
                consume(&broker, "mail", "late")?;
            }
            assert!(broker.consume("none", "late", |_| Ok(())).is_err());
            broker.streams.close()?;
        }
        assert_eq!(had["billing"].len(), 18);
        assert_eq!(had["late"][..2], ["orders 2 4", "orders both"]);
        assert_eq!(had["late"].len(), 2 + 18);
        Ok(())
    }
}
