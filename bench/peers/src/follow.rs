//! The loop of a follower: everything that is appended is seen once and in order.
//!
//! *Owns*: that check, and how long a follower is patient. *May not touch*: engines, figures.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::engine::Follower;
use crate::news::News;
use crate::record::head;

/// How quickly a follower to whom no record comes notices that it is to end.
const NOTICE: Duration = Duration::from_millis(20);
/// How long a follower waits for a record that it should see.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a follower has seen.
#[derive(Debug)]
pub struct Watch {
    /// Of each thread, the number of the record that comes next.
    next: Vec<u64>,
    record_bytes: usize,
    pub count: u64,
    wrong: Option<String>,
}

impl Watch {
    pub fn new(from: &[u64], record_bytes: usize) -> Self {
        Self { next: from.to_vec(), record_bytes, count: 0, wrong: None }
    }

    #[inline]
    fn see(&mut self, record: &[u8]) {
        let found = head(record).filter(|_| record.len() == self.record_bytes);
        match found.and_then(|(thread, number)| Some((self.next.get_mut(thread as usize)?, number)))
        {
            Some((next, number)) if *next == number => {
                *next += 1;
                self.count += 1;
            }
            _ => {
                let (head, bytes) = (head(record), record.len());
                let wrong = || format!("a follower saw {head:?} in {bytes} bytes, out of order");
                self.wrong.get_or_insert_with(wrong);
            }
        }
    }

    /// Follows until everything was seen.
    pub fn follow(&mut self, follower: &mut dyn Follower, news: &News) -> Result<()> {
        let mut idle_since = None;
        while !news.is_all(&self.next) {
            let count = follower.take(news, NOTICE, &mut |record| self.see(record))?;
            if let Some(wrong) = self.wrong.take() {
                bail!("{wrong}");
            }
            if count > 0 {
                idle_since = None;
                continue;
            }
            let since: Instant = *idle_since.get_or_insert_with(Instant::now);
            let next = &self.next;
            ensure!(since.elapsed() < PATIENCE, "a follower waits in vain behind {next:?}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    /// Gives one record at a time.
    struct Given(Vec<Vec<u8>>);

    impl Follower for Given {
        fn take(&mut self, _: &News, _: Duration, show: &mut dyn FnMut(&[u8])) -> Result<u64> {
            if self.0.is_empty() {
                bail!("no more");
            }
            show(&self.0.remove(0));
            Ok(1)
        }
    }

    fn followed(records: Vec<Vec<u8>>) -> Result<u64> {
        let (mut watch, news) = (Watch::new(&[0, 1], 40), News::new(&[2, 2]));
        news.end();
        watch.follow(&mut Given(records), &news)?;
        Ok(watch.count)
    }

    #[test]
    fn what_is_seen_is_in_order_and_whole() {
        let mut threads = Record::all(2, 40);
        threads[1].advance();
        let some = [0, 1, 0].map(|thread: usize| threads[thread].advance().to_vec());
        assert_eq!(followed(some.to_vec()).expect("all"), 3);
        let [a, b, c] = some;
        assert!(followed(vec![a.clone(), c.clone()]).is_err(), "one is missing");
        assert!(followed(vec![b.clone(), c]).is_err(), "the first is missing");
        assert!(followed(vec![a.clone(), a.clone()]).is_err(), "one twice");
        assert!(followed(vec![a[..39].to_vec(), b]).is_err(), "a short one");
    }
}
