//! Puts per second, each durable before it counts: this log beside SlateDB's own WAL on local
//! files, in one run, in turns.
//!
//!     cargo run -p slatedb-local --bin measure -- DIR [ROUNDS [PUTS]]
//!
//! `overwrite` is the floor: a bare durable overwrite of 4096 bytes, by one thread.

use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inkstone_slatedb::Wals;
use slatedb::Db;
use slatedb::config::Settings;
use slatedb::object_store::{ObjectStore, local::LocalFileSystem};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// This log, without a timer.
    Inkstone,
    /// SlateDB's own WAL, which flushes so often.
    Objects(Duration),
}

async fn open(directory: &Path, kind: Kind) -> Outcome<Db> {
    let objects = directory.join("objects");
    std::fs::create_dir_all(&objects)?;
    // Objects are synced, as its users who put a WAL on a disk must ask for.
    let files = LocalFileSystem::new_with_prefix(objects)?.with_fsync(true);
    let store: Arc<dyn ObjectStore> = Arc::new(files);
    let flush_interval = match kind {
        Kind::Inkstone => None,
        Kind::Objects(interval) => Some(interval),
    };
    let settings = Settings { flush_interval, ..Settings::default() };
    let builder = Db::builder("bench", store).with_settings(settings);
    Ok(match kind {
        Kind::Inkstone => {
            builder.with_wal_writer(Box::new(Wals::at(directory.join("wal")).of("bench")))
        }
        Kind::Objects(_) => builder,
    }
    .build()
    .await?)
}

/// Puts 128 bytes from so many tasks; each latency.
async fn puts(db: &Db, tasks: usize, puts: usize) -> Outcome<(Duration, Vec<Duration>)> {
    let began = Instant::now();
    let work = (0..tasks).map(|task| {
        let db = db.clone();
        tokio::spawn(async move {
            let mut latencies = Vec::with_capacity(puts / tasks);
            for number in 0..puts / tasks {
                let began = Instant::now();
                let key = format!("key-{task:03}-{number:09}");
                db.put(key, [7_u8; 128]).await?.await_durable().await?;
                latencies.push(began.elapsed());
            }
            Outcome::Ok(latencies)
        })
    });
    let mut latencies = Vec::with_capacity(puts);
    for task in work.collect::<Vec<_>>() {
        latencies.extend(task.await??);
    }
    Ok((began.elapsed(), latencies))
}

/// Bare overwrites, each durable.
fn overwrites(directory: &Path, count: usize) -> Outcome<(Duration, Vec<Duration>)> {
    let path = directory.join("overwritten");
    std::fs::write(&path, vec![1; 1 << 20])?;
    std::fs::File::open(&path)?.sync_all()?;
    // O_DSYNC.
    let file = std::fs::OpenOptions::new().write(true).custom_flags(0o10000).open(&path)?;
    let (began, mut latencies) = (Instant::now(), Vec::with_capacity(count));
    for number in 0..count as u64 {
        let began = Instant::now();
        file.write_all_at(&[number as u8; 4096], number % 256 * 4096)?;
        latencies.push(began.elapsed());
    }
    Ok((began.elapsed(), latencies))
}

fn line(what: &str, round: usize, (took, mut latencies): (Duration, Vec<Duration>)) {
    latencies.sort();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize].as_micros();
    let rate = latencies.len() as f64 / took.as_secs_f64();
    println!("{round} {what:<24} {rate:>9.0}/s  p50 {:>7} us  p99 {:>7} us", at(0.5), at(0.99));
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("which directory?")?;
    let rounds: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let count: usize = arguments.next().map_or(Ok(2000), |text| text.parse())?;
    for round in 0..rounds {
        for (name, kind) in [
            ("inkstone", Kind::Inkstone),
            ("objects 1 ms", Kind::Objects(Duration::from_millis(1))),
            ("objects 5 ms", Kind::Objects(Duration::from_millis(5))),
        ] {
            let place = Path::new(&directory).join(format!("{}-{round}", name.replace(' ', "-")));
            let db = open(&place, kind).await?;
            puts(&db, 1, 50).await?;
            let serial = if kind == Kind::Inkstone { count } else { count / 4 };
            line(&format!("{name}, 1 task"), round, puts(&db, 1, serial).await?);
            line(&format!("{name}, 64 tasks"), round, puts(&db, 64, serial * 8).await?);
            db.close().await?;
            std::fs::remove_dir_all(&place)?;
        }
        line("overwrite, 1 thread", round, overwrites(Path::new(&directory), count)?);
    }
    Ok(())
}
