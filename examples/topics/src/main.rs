//! Topics of a broker in one log. A topic is a stream, and retention truncates its front. The place
//! of a consumer is the note of a stream of its own: each is written alone, and there may be any
//! number. All share every flush.
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

/// The stream of names: its record with the number 7 is the name of stream 7.
const NAMES: u64 = 0;

/// Streams by their names: a topic, or the place of a consumer ([`place_of`]).
type Names = BTreeMap<String, u64>;

struct Broker {
    streams: Streams,
    names: Mutex<Names>,
}

/// No argument of a program has a NUL.
fn place_of(topic: &str, consumer: &str) -> String {
    format!("{topic}\0{consumer}")
}

/// The stream of a name. If it is neither among the names nor among those that are new in this
/// batch, the batch creates it.
fn named<'a>(name: &'a str, names: &Names, new: &mut Names, batch: &mut Batch<'a>) -> u64 {
    if let Some(stream) = names.get(name).or_else(|| new.get(name)) {
        return *stream;
    }
    let stream = (names.len() + new.len()) as u64 + 1;
    batch.append_at(NAMES, stream, name.as_bytes()).create(stream, 1);
    new.insert(name.to_owned(), stream);
    stream
}

impl Broker {
    fn open(path: impl AsRef<Path>) -> Result<Self> {
        let streams = Streams::open(path, Options::new())?;
        if streams.bounds(NAMES).is_err() {
            streams.create(NAMES, 1)?.wait()?;
        }
        let mut names = Names::new();
        for name in streams.reader().records(NAMES, 1) {
            let Record { number, bytes } = name?;
            names.insert(String::from_utf8(bytes)?, number);
        }
        Ok(Self { streams, names: Mutex::new(names) })
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn topic(&self, name: &str) -> Result<u64> {
        self.names().get(name).copied().with_context(|| format!("there is no topic {name}"))
    }

    /// Publishes messages, in one topic or in many: all or none. Topics that are new are created.
    fn publish(&self, messages: &[(&str, &[u8])]) -> Result<()> {
        let mut names = self.names();
        let (mut new, mut batch) = (Names::new(), Batch::new());
        for (name, message) in messages {
            let topic = named(name, &names, &mut new, &mut batch);
            batch.append(topic, message);
        }
        let written = self.streams.apply(&batch)?;
        names.append(&mut new);
        // Others publish meanwhile, and share the flush.
        drop(names);
        Ok(written.wait()?)
    }

    /// The number of the last message that a consumer has had, or 0.
    fn place(&self, name: &str) -> Result<u64> {
        let Some(place) = self.names().get(name).copied() else { return Ok(0) };
        Ok(String::from_utf8(self.streams.reader().note(place)?)?.parse()?)
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
        let name = place_of(topic, consumer);
        let (topic, had) = (self.topic(topic)?, self.place(&name)?);
        let first = self.streams.bounds(topic)?.first;
        let mut last = None;
        for message in self.streams.reader().records(topic, first.max(had + 1)) {
            let message = message?;
            use_it(&message)?;
            last = Some(message.number);
        }
        let Some(last) = last.map(|last| last.to_string()) else { return Ok(()) };
        let mut names = self.names();
        let (mut new, mut batch) = (Names::new(), Batch::new());
        let place = named(&name, &names, &mut new, &mut batch);
        let written = self.streams.apply(batch.note(place, last.as_bytes()))?;
        names.append(&mut new);
        drop(names);
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

    #[test]
    fn a_topic_has_any_number_of_consumers() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let broker = Broker::open(directory.path().join("broker"))?;
        broker.publish(&[("orders", b"one")])?;
        let count = || {
            let mut had = 0;
            for consumer in 0..400 {
                broker.consume("orders", &format!("consumer {consumer}"), |_| {
                    had += 1;
                    Ok(())
                })?;
            }
            Ok::<_, anyhow::Error>(had)
        };
        assert_eq!((count()?, count()?), (400, 0));
        Ok(())
    }
}
