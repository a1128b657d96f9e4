//! The loop of a follower, in this process or in another: everything that is appended is seen once
//! and in order.
//!
//! *Owns*: that check, and how long a follower is patient. *May not touch*: engines, figures.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use inkstone_host::monotonic_ns;

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
    /// When records came last.
    pub last_ns: u64,
    wrong: Option<String>,
}

impl Watch {
    pub fn new(from: &[u64], record_bytes: usize) -> Self {
        Self { next: from.to_vec(), record_bytes, count: 0, last_ns: 0, wrong: None }
    }

    #[inline]
    fn see(&mut self, record: &[u8]) -> Option<(u32, u64)> {
        let found = head(record).filter(|_| record.len() == self.record_bytes);
        let is_next =
            found.is_some_and(|(thread, number)| self.next.get(thread as usize) == Some(&number));
        if !is_next {
            let wrong = || {
                format!("a follower saw {:?} in {} bytes, out of order", head(record), record.len())
            };
            self.wrong.get_or_insert_with(wrong);
            return None;
        }
        let (thread, number) = found?;
        self.next[thread as usize] += 1;
        self.count += 1;
        Some((thread, number))
    }

    /// Follows until `is_all` returns true, and calls `seen` for each record.
    pub fn follow(
        &mut self,
        follower: &mut dyn Follower,
        news: Option<&News>,
        is_all: impl Fn(&[u64]) -> bool,
        mut seen: impl FnMut(u32, u64),
    ) -> Result<()> {
        let mut idle_since = None;
        while !is_all(&self.next) {
            let count = follower.take(news, NOTICE, &mut |record| {
                if let Some((thread, number)) = self.see(record) {
                    seen(thread, number);
                }
            })?;
            if let Some(wrong) = self.wrong.take() {
                bail!("{wrong}");
            }
            match count {
                0 => {
                    let since: Instant = *idle_since.get_or_insert_with(Instant::now);
                    ensure!(
                        since.elapsed() < PATIENCE,
                        "a follower waits in vain behind {:?}",
                        self.next
                    );
                }
                _ => {
                    idle_since = None;
                    self.last_ns = monotonic_ns();
                }
            }
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
        fn take(
            &mut self,
            _: Option<&News>,
            _: Duration,
            show: &mut dyn FnMut(&[u8]),
        ) -> Result<u64> {
            if self.0.is_empty() {
                bail!("no more");
            }
            show(&self.0.remove(0));
            Ok(1)
        }
    }

    fn followed(records: Vec<Vec<u8>>) -> Result<Vec<(u32, u64)>> {
        let (mut watch, mut all) = (Watch::new(&[0, 1], 40), Vec::new());
        watch.follow(
            &mut Given(records),
            None,
            |counts| counts == [2, 2],
            |thread, number| all.push((thread, number)),
        )?;
        Ok(all)
    }

    #[test]
    fn what_is_seen_is_in_order_and_whole() {
        let mut threads = Record::all(2, 40);
        threads[1].advance();
        let some = [0, 1, 0].map(|thread: usize| threads[thread].advance().to_vec());
        assert_eq!(followed(some.to_vec()).expect("all"), [(0, 0), (1, 1), (0, 1)]);
        let [a, b, c] = some;
        assert!(followed(vec![a.clone(), c.clone()]).is_err(), "one is missing");
        assert!(followed(vec![b.clone(), c]).is_err(), "the first is missing");
        assert!(followed(vec![a.clone(), a.clone()]).is_err(), "one twice");
        assert!(followed(vec![a[..39].to_vec(), b]).is_err(), "a short one");
    }
}
