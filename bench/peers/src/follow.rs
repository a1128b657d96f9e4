//! The loop of a follower: everything that is appended is seen once and in order.
//!
//! *Owns*: how long a follower is patient. *May not touch*: engines, figures.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::engine::Follower;
use crate::news::News;
use crate::record::Checker;

/// How quickly a follower to whom no record comes notices that it is to end.
const NOTICE: Duration = Duration::from_millis(20);
/// How long a follower waits for a record that it should see.
const PATIENCE: Duration = Duration::from_secs(30);

/// Follows until everything was seen.
pub fn follow(seen: &mut Checker, follower: &mut dyn Follower, news: &News) -> Result<()> {
    let mut idle_since = None;
    while !news.is_all(&seen.next()) {
        let count = follower.take(news, NOTICE, &mut |record| seen.see(record))?;
        seen.so_far()?;
        if count > 0 {
            idle_since = None;
            continue;
        }
        let since: Instant = *idle_since.get_or_insert_with(Instant::now);
        let next = seen.next();
        ensure!(since.elapsed() < PATIENCE, "a follower waits in vain behind {next:?}");
    }
    Ok(())
}
