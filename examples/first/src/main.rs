use inkstone::{Log, Options};
use std::time::Instant;

fn main() -> inkstone::Result<()> {
    let log = Log::open("first-log", Options::default())?;
    let first = log.append_durable(b"an order")?; // on the disk when it returns
    let begin = Instant::now();
    let last = log.append_durable(b"another order")?;
    let took = begin.elapsed();
    let records: Vec<_> = log.reader().records(first).collect::<Result<_, _>>()?;
    assert_eq!(records.last().map(|record| record.lsn), Some(last));
    println!("Appended records {first} and {last} to first-log/, and read {} back.", records.len());
    println!("The durable append took {took:.0?}: {}.", log.choice());
    println!("Next: docs/tour.md has the other calls. `cargo test` tests the log.");
    log.close()
}
