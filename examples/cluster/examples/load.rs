//! Clients that each wait for their put, for a while, and what that came to, as JSON. The
//! comparison of `bench/cluster` runs it.
//!
//! `load A,B,C CLIENTS SECONDS VALUE_BYTES`: the addresses of a cluster that runs. A latency is
//! from a client's call to its answer.

use std::error::Error;
use std::time::{Duration, Instant};

use bytes::Bytes;
use replicated_log::client::{Client, ClientOptions, Outcome};
use replicated_log::transport::Transport;

#[derive(Default)]
struct Turn {
    latencies: Vec<Duration>,
    failed: usize,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [servers, clients, seconds, value_bytes] = arguments.as_slice() else {
        return Err("usage: load A,B,C CLIENTS SECONDS VALUE_BYTES".into());
    };
    let servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
    let duration = Duration::try_from_secs_f64(seconds.parse()?)?;
    let value = Bytes::from(vec![b'v'; value_bytes.parse()?]);

    // One put each before the clock starts, so that no turn pays for connecting.
    let mut ready = Vec::new();
    for number in 0..clients.parse::<usize>()? {
        let mut client = Client::new(servers.clone(), Transport::tcp(), ClientOptions::default());
        let key = format!("key-{number}");
        match client.put(key.as_str(), value.clone()).await {
            Outcome::Done(_) => ready.push((client, key)),
            Outcome::NotDone(why) | Outcome::Unknown(why) => {
                return Err(format!("the first put of client {number}: {why}").into());
            }
        }
    }
    let start = Instant::now();
    let turns: Vec<_> = ready
        .into_iter()
        .map(|(mut client, key)| {
            let value = value.clone();
            tokio::spawn(async move {
                let mut turn = Turn::default();
                while start.elapsed() < duration {
                    let from = Instant::now();
                    match client.put(key.as_str(), value.clone()).await {
                        Outcome::Done(_) => turn.latencies.push(from.elapsed()),
                        Outcome::NotDone(_) | Outcome::Unknown(_) => turn.failed += 1,
                    }
                }
                turn
            })
        })
        .collect();
    let (mut latencies, mut failed) = (Vec::new(), 0);
    for turn in turns {
        let turn = turn.await?;
        latencies.extend(turn.latencies);
        failed += turn.failed;
    }
    let took = start.elapsed();
    latencies.sort_unstable();
    let at = |part: usize| {
        latencies.get(latencies.len() * part / 100).map_or(0.0, |d| d.as_secs_f64() * 1e6)
    };
    println!(
        r#"{{"requests":{},"failed":{failed},"seconds":{},"p50_us":{},"p99_us":{}}}"#,
        latencies.len(),
        took.as_secs_f64(),
        at(50),
        at(99)
    );
    Ok(())
}
