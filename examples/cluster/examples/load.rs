//! Clients that each wait for their put, for a while, and what that came to, as JSON. The
//! comparison of `bench/cluster` runs it.
//!
//! `load A,B,C CLIENTS SECONDS VALUE_BYTES`: the addresses of a cluster that runs. A latency is
//! from a client's call to its answer.

use std::error::Error;
use std::time::{Duration, Instant};

use bytes::Bytes;
use replicated_log::client::{Client, Outcome};

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
        let (mut client, key) = (Client::new(servers.clone()), format!("key-{number}"));
        match client.put(key.as_str(), value.clone()).await {
            Outcome::Done(_) => ready.push((client, key)),
            failed => return Err(format!("the first put of client {number}: {failed:?}").into()),
        }
    }
    let start = Instant::now();
    let mut turns = tokio::task::JoinSet::new();
    for (mut client, key) in ready {
        let value = value.clone();
        turns.spawn(async move {
            let (mut latencies, mut failed) = (Vec::new(), 0);
            while start.elapsed() < duration {
                let from = Instant::now();
                match client.put(key.as_str(), value.clone()).await {
                    Outcome::Done(_) => latencies.push(from.elapsed()),
                    Outcome::NotDone(_) | Outcome::Unknown(_) => failed += 1,
                }
            }
            (latencies, failed)
        });
    }
    let (mut latencies, mut failed) = (Vec::new(), 0_usize);
    for (of_one, failed_of_one) in turns.join_all().await {
        latencies.extend(of_one);
        failed += failed_of_one;
    }
    let (requests, seconds) = (latencies.len(), start.elapsed().as_secs_f64());
    latencies.sort_unstable();
    let at =
        |part: usize| latencies.get(requests * part / 100).map_or(0.0, |d| d.as_secs_f64() * 1e6);
    let (p50, p99) = (at(50), at(99));
    print!(r#"{{"requests":{requests},"failed":{failed},"seconds":{seconds},"#);
    println!(r#""p50_us":{p50},"p99_us":{p99}}}"#);
    Ok(())
}
