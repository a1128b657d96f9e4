//! A small key-value store: SlateDB with its objects and its write-ahead log on this machine.
//!
//!     cargo run -p slatedb-local -- DIR put KEY VALUE
//!     cargo run -p slatedb-local -- DIR get KEY
//!     cargo run -p slatedb-local -- DIR scan [PREFIX]
//!     cargo run -p slatedb-local -- DIR fill COUNT [BYTES]   # prints each row once it is durable
//!     cargo run -p slatedb-local -- DIR follow               # another process: what it sees
//!     cargo run -p slatedb-local -- DIR clone NAME           # beside the writer, if there is one
//!     cargo run -p slatedb-local -- DIR begin-anew           # if the log in DIR/wal is lost
//!
//! `fill` continues after the rows of an earlier `fill`, with values of BYTES bytes. Kill it in the
//! middle (`kill -9`), then `scan`: each printed row is there, in the same order. SlateDB's
//! settings may come from the environment, as `SLATEDB_L0_SST_SIZE_BYTES=65536`, and so may the
//! most bytes of the log's files: `LOG_BYTES_MAX=67108864`, for batches of a 32nd of that.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use inkstone_slatedb::{DatabaseWal, Tuning, Wals};
use slatedb::admin::{Admin, CloneSourceSpec};
use slatedb::config::{DbReaderOptions, Settings};
use slatedb::object_store::{ObjectStore, local::LocalFileSystem};
use slatedb::{Db, DbReader, GarbageCollectorBuilder};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn objects(directory: &Path) -> Outcome<Arc<dyn ObjectStore>> {
    let objects = directory.join("objects");
    std::fs::create_dir_all(&objects)?;
    // Without `with_fsync` a power loss can take objects whose rows are no longer in the log.
    Ok(Arc::new(LocalFileSystem::new_with_prefix(objects)?.with_fsync(true)))
}

fn wals(directory: &Path, store: &Arc<dyn ObjectStore>) -> Outcome<Wals> {
    let mut tuning = Tuning::default();
    if let Ok(bytes) = std::env::var("LOG_BYTES_MAX") {
        tuning.log_bytes_max = bytes.parse()?;
        tuning.log = tuning.log.record_bytes_max(bytes.parse::<usize>()? / 32);
    }
    Ok(Wals::tuned(directory.join("wal"), store.clone(), tuning))
}

fn wal(directory: &Path, store: &Arc<dyn ObjectStore>) -> Outcome<DatabaseWal> {
    Ok(wals(directory, store)?.of("store"))
}

async fn open(directory: &Path) -> Outcome<Db> {
    let store = objects(directory)?;
    open_with(wal(directory, &store)?, store).await
}

async fn open_with(wal: DatabaseWal, store: Arc<dyn ObjectStore>) -> Outcome<Db> {
    let settings = Settings::from_env_with_default("SLATEDB_", Settings::default())?;
    let gc = GarbageCollectorBuilder::new("store", store.clone())
        .with_options(settings.garbage_collector_options.clone().unwrap_or_default())
        .with_wal_gc(Arc::new(wal.clone()));
    Ok(Db::builder("store", store)
        .with_settings(settings)
        .with_wal_writer(Box::new(wal))
        .with_gc_builder(gc)
        .build()
        .await?)
}

async fn put(db: &Db, key: &str, value: &str) -> Outcome<()> {
    db.put(key, value).await?.await_durable().await?;
    Ok(())
}

async fn run(directory: &Path, command: &[&str]) -> Outcome<()> {
    match command {
        ["put", key, value] => {
            let db = open(directory).await?;
            put(&db, key, value).await?;
            db.close().await?;
        }
        ["get", key] => {
            let db = open(directory).await?;
            match db.get(key).await? {
                Some(value) => println!("{}", String::from_utf8_lossy(&value)),
                None => println!("{key} is not there"),
            }
            db.close().await?;
        }
        ["scan", rest @ ..] => {
            let prefix = rest.first().copied().unwrap_or("");
            let db = open(directory).await?;
            let mut found = db.scan_prefix(prefix, ..).await?;
            while let Some(entry) = found.next().await? {
                let [key, value] =
                    [&entry.key, &entry.value].map(|bytes| String::from_utf8_lossy(bytes));
                println!("{key} {value}");
            }
            db.close().await?;
        }
        ["fill", count, rest @ ..] => {
            let bytes = rest.first().map_or(Ok(7), |text| text.parse())?;
            let db = open(directory).await?;
            let (mut found, mut next) = (db.scan_prefix("row-", ..).await?, 0);
            while found.next().await?.is_some() {
                next += 1;
            }
            for number in next..next + count.parse::<u64>()? {
                let (key, value) = (format!("row-{number:09}"), format!("{number:.<bytes$}"));
                put(&db, &key, &value).await?;
                println!("{key} {value}");
                std::io::stdout().flush()?;
            }
            db.close().await?;
        }
        ["follow"] => {
            let options = DbReaderOptions {
                manifest_poll_interval: Duration::from_millis(10),
                ..DbReaderOptions::default()
            };
            let store = objects(directory)?;
            let wal = Arc::new(wal(directory, &store)?);
            let reader = DbReader::builder("store", store)
                .with_options(options)
                .with_wal_reader(wal)
                .build()
                .await?;
            let mut shown = 0;
            loop {
                let mut found = reader.scan_prefix("", ..).await?;
                let mut count = 0;
                while found.next().await?.is_some() {
                    count += 1;
                }
                if count != shown {
                    println!("{count} keys");
                    shown = count;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        ["clone", name] => {
            let store = objects(directory)?;
            let wals = Arc::new(wals(directory, &store)?);
            let admin = Admin::builder(*name, store).with_wal_admin(wals).build();
            let source = CloneSourceSpec::new("store");
            admin.create_clone_builder_from_source(source).build().await?;
        }
        ["begin-anew"] => {
            let store = objects(directory)?;
            let db = open_with(wal(directory, &store)?.begin_anew(), store).await?;
            db.close().await?;
            println!("a new log has begun; the rows that were in the old one alone are given up");
        }
        _ => println!(
            "DIR put KEY VALUE | get KEY | scan [PREFIX] | fill COUNT [BYTES] | follow | \
             clone NAME | begin-anew"
        ),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (directory, command) = words.split_first().ok_or("which directory?")?;
    run(Path::new(directory), command).await
}
