//! A storm: nodes are killed one after the other while clients write and snapshots are made all the
//! time.
//!
//! `INKSTONE_STORM_KILLS` sets how many are killed (4 unless it is set), `INKSTONE_STORM_SEED`
//! which and when, as far as a real machine follows a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cluster::{Appender, Cluster};

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_kills_leaves_all_nodes_with_one_state() {
    let kills = from_environment("INKSTONE_STORM_KILLS").unwrap_or(4);
    let seed = from_environment("INKSTONE_STORM_SEED").unwrap_or_else(rand::random);
    println!("INKSTONE_STORM_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::of_three(&[
        "--snapshot-every",
        "20",
        "--segment-bytes",
        "4194304",
        "--election-ms",
        "300",
        "--heartbeat-ms",
        "75",
    ]);
    let stop = Arc::new(AtomicBool::new(false));
    let writers = ["one", "two", "three", "four"].map(|key| {
        let (mut appender, stop) = (Appender::of(key, &cluster), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                appender.append_one().await;
            }
            appender
        })
    });
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(random.random_range(100..1000))).await;
        let id = random.random_range(1..=3);
        cluster.kill(id);
        tokio::time::sleep(Duration::from_millis(random.random_range(0..800))).await;
        cluster.start(id);
    }
    stop.store(true, Ordering::Relaxed);
    let mut done = 0;
    let mut appenders = Vec::new();
    for writer in writers {
        let appender = writer.await.unwrap();
        done += appender.done.len();
        appenders.push(appender);
    }
    let all = cluster
        .wait(&[1, 2, 3], "the same entries applied everywhere", |all| {
            all.iter().all(|one| one.applied == all[0].applied && one.last == one.applied)
        })
        .await;
    let same =
        all.iter().all(|one| one.fingerprint == all[0].fingerprint && one.keys == all[0].keys);
    assert!(same, "the same entries, and not the same state, after seed {seed}: {all:#?}");
    for appender in &mut appenders {
        appender.check().await;
    }
    assert!(all.iter().all(|one| one.snapshot.is_some()), "no snapshot was made: {all:#?}");
    println!(
        "{kills} kills, {done} writes done, applied {:?}, snapshot {:?}",
        all[0].applied, all[0].snapshot
    );
}
