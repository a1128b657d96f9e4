//! The tour of docs/tour.md, which quotes this file: `cargo run -p inkstone --example tour DIR`.
use inkstone::{Log, Options, Reader, Result};
use std::time::Duration;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or("tour.log".into());

    // Open. The first opening makes the log; a later one finds its records.
    let log = Log::open(&path, Options::default())?;
    println!("{}", log.recovery());

    // Append and wait: the record is durable when the call returns.
    let first = log.append_durable(b"one order")?;

    // Append now and wait later: concurrent waiters share a flush.
    let second = log.append(b"another order")?;
    let batch = log.append_batch(&["all of these", "or none"])?;
    let kept = second.wait()?;
    let last = batch.wait()?;

    // Read, here and in any other process, without a lock.
    for record in log.reader().records(first) {
        let record = record?;
        println!("{}: {}", record.lsn, String::from_utf8_lossy(&record.bytes));
    }

    // Follow: a cursor sleeps until the next record is durable.
    let mut follower = Reader::open(&path, &Options::default())?.from(last);
    while let Some(record) = follower.next_within(Duration::from_millis(50))? {
        println!("followed: {}", record.lsn);
    }

    // Truncate: at the front, and at the end.
    log.truncate_before(kept)?;
    log.truncate_after(kept)?;
    log.close()?;

    // Recover. After a kill or a power cut, opening is all there is to do.
    let log = Log::open(&path, Options::default())?;
    println!("{}: {} to {}", log.recovery(), log.first(), log.last());
    log.close()
}
