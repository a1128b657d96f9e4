//! Puts per second, each durable before it counts: this log beside SlateDB's own WAL on local
//! files, in one run, in turns.
//!
//!     cargo run -p slatedb-local --bin measure -- DIR [ROUNDS [PUTS]]
//!
//!     cargo run -p slatedb-local --bin measure -- DIR follow [PUTS]
//!
//! The second: how soon another process sees a row after `put` was called, by a `DbReader` that
//! looks every millisecond, and by an iterator of the log that has no end. `overwrite` is the
//! floor: a bare durable overwrite of 4096 bytes, by one thread.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use inkstone_slatedb::Wals;
use slatedb::config::{DbReaderOptions, Settings};
use slatedb::object_store::{ObjectStore, local::LocalFileSystem};
use slatedb::wal::WalReader;
use slatedb::{Db, DbReader, DbReaderMode};

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

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// What a row's value says: when it was put.
fn put_at(value: &[u8]) -> Duration {
    let bytes = value.try_into().map_or(0, u64::from_le_bytes);
    Duration::from_nanos(bytes)
}

/// The process that follows, by the kind.
async fn follower(directory: &Path, kind: &str, count: usize) -> Outcome<()> {
    let wal = Wals::at(directory.join("wal")).of("bench");
    let mut latencies = Vec::with_capacity(count);
    if kind == "iterator" {
        let first = wal.last_wal_file_id(0).await? + 1;
        let mut rows = wal.iterator((first..).into()).await?;
        println!("ready");
        while latencies.len() < count {
            let Some(more) = rows.next().await? else { break };
            let seen = now();
            for row in more.rows {
                let value = row.value.as_bytes().unwrap_or_default();
                latencies.push(seen.saturating_sub(put_at(&value)));
            }
        }
    } else {
        let store: Arc<dyn ObjectStore> =
            Arc::new(LocalFileSystem::new_with_prefix(directory.join("objects"))?);
        let options = DbReaderOptions {
            manifest_poll_interval: Duration::from_millis(1),
            ..DbReaderOptions::default()
        };
        let reader = DbReader::builder("bench", store)
            .with_reader_mode(DbReaderMode::FollowLatest)
            .with_options(options)
            .with_wal_reader(Arc::new(wal))
            .build()
            .await?;
        println!("ready");
        for number in 0..count {
            let value = loop {
                match reader.get(format!("follow-{kind}-{number}")).await? {
                    Some(value) => break value,
                    None => tokio::time::sleep(Duration::from_micros(200)).await,
                }
            };
            latencies.push(now().saturating_sub(put_at(&value)));
        }
    }
    line(&format!("seen by {kind}"), 0, (Duration::from_secs(1), latencies));
    Ok(())
}

async fn followed(directory: &Path, count: usize) -> Outcome<()> {
    let db = open(directory, Kind::Inkstone).await?;
    db.put("first", "row").await?.await_durable().await?;
    for kind in ["iterator", "reader"] {
        let mut child = Command::new(std::env::current_exe()?)
            .args([directory.as_os_str(), "follower".as_ref(), kind.as_ref()])
            .arg(count.to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        said.next().ok_or("the follower ended")??;
        let mut latencies = Vec::new();
        for number in 0..count {
            let began = Instant::now();
            let value = (now().as_nanos() as u64).to_le_bytes();
            db.put(format!("follow-{kind}-{number}"), value).await?.await_durable().await?;
            latencies.push(began.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        line("put, durable", 0, (Duration::from_secs(1), latencies));
        println!("{}", said.next().ok_or("the follower ended")??);
        child.wait()?;
    }
    Ok(db.close().await?)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let directory = arguments.next().ok_or("which directory?")?;
    let place = Path::new(&directory);
    if arguments.next_if(|word| word == "follow").is_some() {
        return followed(place, arguments.next().map_or(Ok(500), |text| text.parse())?).await;
    }
    if arguments.next_if(|word| word == "follower").is_some() {
        let kind = arguments.next().ok_or("which kind?")?;
        return follower(place, &kind, arguments.next().ok_or("how many?")?.parse()?).await;
    }
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
