//! Nodes as processes, on loopback: what a user starts, kills and asks.
//!
//! Nothing here is timed: a test waits for what must come, up to `PATIENCE`.

#![allow(clippy::unwrap_used)]

mod cluster;
mod storm;
#[cfg(feature = "tls")]
mod tls;

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use cluster::{Appender, Cluster, PATIENCE, PROGRAM, refused, text};

#[tokio::test]
async fn a_killed_leader_takes_nothing_with_it() {
    let mut cluster = Cluster::of_three(&[]);
    let mut appender = Appender::new(&cluster);
    appender.append(50).await;
    let leader = cluster.leader(&[1, 2, 3]).await;
    cluster.kill(leader);
    appender.append(50).await;
    appender.check().await;
    cluster.start(leader);
    cluster.agree(&[1, 2, 3]).await;
    appender.check().await;
}

#[tokio::test]
async fn all_nodes_killed_at_once_lose_nothing() {
    let mut cluster = Cluster::of_three(&[]);
    let mut appender = Appender::new(&cluster);
    for _ in 0..2 {
        appender.append(40).await;
        for id in 1..=3 {
            cluster.kill(id);
        }
        cluster.start_members();
        appender.check().await;
    }
    cluster.agree(&[1, 2, 3]).await;
}

#[tokio::test]
async fn a_node_that_was_away_gets_a_snapshot() {
    let mut cluster = Cluster::of_three(&["--snapshot-every", "100"]);
    let mut appender = Appender::new(&cluster);
    appender.append(10).await;
    cluster.agree(&[1, 2, 3]).await;
    cluster.kill(3);
    appender.append(500).await;
    let leader = cluster.leader(&[1, 2]).await;
    let seen = cluster
        .wait(&[leader], "a purge beyond what node 3 has", |all| all[0].purged > Some(100))
        .await;
    cluster.start(3);
    cluster.agree(&[1, 2, 3]).await;
    let away = cluster.status(3).await.unwrap();
    assert!(away.snapshot >= seen[0].purged, "{away:?} got entries that {:?} had purged", seen[0]);
    appender.check().await;
}

#[tokio::test]
async fn members_come_and_go() {
    let mut cluster = Cluster::of_three(&[]);
    let mut appender = Appender::new(&cluster);
    appender.append(10).await;
    cluster.start(4);
    let added = cluster.run(&["add", "4", cluster.address(4)]);
    assert_eq!(added.status.code(), Some(0), "{}", text(&added.stderr));
    let removed = cluster.run(&["remove", "1"]);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed.stderr));
    cluster.kill(1);
    // Three have a vote, so one more may be away.
    let leader = cluster.leader(&[2, 3, 4]).await;
    cluster.kill(leader);
    appender.append(10).await;
    appender.check().await;
    let nobody = cluster.run(&["remove", "9"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(text(&nobody.stderr).contains("no node 9"), "{}", text(&nobody.stderr));
}

#[tokio::test]
async fn entries_are_followed_in_order() {
    let cluster = Cluster::of_three(&[]);
    let mut appender = Appender::new(&cluster);
    appender.append(20).await;
    let mut tail = cluster.client().tail(0);
    let (mut seen, mut last) = (Vec::new(), None);
    while seen.len() < 20 {
        let entry = tokio::time::timeout(PATIENCE, tail.next())
            .await
            .expect("entries that are there")
            .unwrap();
        assert!(last < Some(entry.index), "{last:?}, then {}", entry.index);
        last = Some(entry.index);
        seen.extend(entry.request.map(|request| request.to_string()));
    }
    let expected: Vec<_> =
        appender.done.iter().map(|number| format!("append numbers {number}")).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn the_commands_say_what_became_of_them() {
    let cluster = Cluster::of_three(&[]);
    assert_eq!(cluster.run(&["put", "key", "value"]).status.code(), Some(0));
    assert_eq!(cluster.run(&["append", "key", "more"]).status.code(), Some(0));
    let got = cluster.run(&["get", "key"]);
    assert_eq!((got.status.code(), text(&got.stdout).as_str()), (Some(0), "value\nmore\n"));
    let empty = cluster.run(&["put", "", "value"]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(text(&empty.stderr).contains("at least one byte"), "{}", text(&empty.stderr));
    assert_eq!(cluster.run(&["put", "key"]).status.code(), Some(64));

    // What comes on the standard input is the value, byte for byte.
    let bytes = b"two\nlines, no text: \xff\0";
    let mut put =
        cluster.client_command(&["put", "bytes", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(bytes).unwrap();
    assert_eq!(put.wait().unwrap().code(), Some(0));
    assert_eq!(cluster.run(&["get", "bytes"]).stdout, [&bytes[..], b"\n"].concat());
}

#[tokio::test]
async fn a_leader_that_is_cut_off_proposes_nothing() {
    let mut cluster = Cluster::of_three(&[]);
    assert_eq!(cluster.run(&["put", "key", "value"]).status.code(), Some(0));
    let leader = cluster.leader(&[1, 2, 3]).await;
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.kill(id);
    }
    cluster.wait(&[leader], "a long silence", |all| all[0].quorum_ms_ago > Some(2000)).await;
    let before = cluster.status(leader).await.unwrap();
    let alone = Command::new(PROGRAM)
        .args(["put", "key", "other", "--patience", "2", "--servers", cluster.address(leader)])
        .output()
        .unwrap();
    let said = text(&alone.stderr);
    assert_eq!(alone.status.code(), Some(1), "{said}");
    assert!(said.contains("not done") && said.contains("it may be cut off"), "{said}");
    assert_eq!(
        cluster.status(leader).await.unwrap().last,
        before.last,
        "it has proposed something"
    );

    // With the others it goes on, and what was not done has not happened.
    cluster.start_others(leader);
    let got = cluster.run(&["get", "key"]);
    assert_eq!(
        (got.status.code(), text(&got.stdout).as_str()),
        (Some(0), "value\n"),
        "{}",
        text(&got.stderr)
    );
    assert_eq!(cluster.run(&["put", "key", "other"]).status.code(), Some(0));
    for id in 1..=3 {
        cluster.kill(id);
    }
    let nobody = cluster.run(&["get", "key", "--patience", "1"]);
    assert_eq!(nobody.status.code(), Some(1));
}

#[tokio::test]
async fn a_node_whose_directory_was_replaced_says_what_to_do() {
    // No other node is to be elected meanwhile: it would not know what this one confirmed.
    let mut cluster = Cluster::of_three(&["--election-ms", "5000"]);
    let mut appender = Appender::new(&cluster);
    appender.append(20).await;
    let leader = cluster.leader(&[1, 2, 3]).await;
    let term = cluster.agree(&[1, 2, 3]).await[0].term;
    let replaced = if leader == 3 { 2 } else { 3 };
    cluster.kill(replaced);
    std::fs::remove_dir_all(cluster.dir(replaced)).unwrap();

    let said = refused(cluster.command(replaced));
    assert!(said.contains(&format!("node {replaced} has lost data: its log is empty")), "{said}");
    assert!(
        said.contains(&format!("`remove {replaced}`")) && said.contains("never used"),
        "{said}"
    );
    assert!(!said.contains("panicked"), "{said}");

    // The others have not noticed, and what it says to do can be done.
    let others: Vec<_> = (1..=3).filter(|id| *id != replaced).collect();
    assert_eq!(cluster.leader(&others).await, leader);
    assert_eq!(cluster.status(leader).await.unwrap().term, term);
    let removed = cluster.run(&["remove", &replaced.to_string()]);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed.stderr));
    cluster.start(4);
    let added = cluster.run(&["add", "4", cluster.address(4)]);
    assert_eq!(added.status.code(), Some(0), "{}", text(&added.stderr));
    appender.append(10).await;
    cluster.agree(&[others[0], others[1], 4]).await;
    appender.check().await;
}

#[tokio::test]
async fn wrong_use_is_refused_with_the_reason() {
    let mut cluster = Cluster::new(3, 1, &[]);
    cluster.start_members();
    let start = |id: usize, directory: &Path, listen: &str, cluster_id: &str| {
        let mut command = Command::new(PROGRAM);
        command.args([
            "serve",
            "--id",
            &id.to_string(),
            "--listen",
            listen,
            "--cluster-id",
            cluster_id,
        ]);
        command.arg("--dir").arg(directory);
        refused(command)
    };
    let free = cluster.address(4).to_owned();
    let taken = start(4, &cluster.dir(4), cluster.address(1), "1");
    assert!(taken.contains("in use"), "{taken}");
    let open = start(1, &cluster.dir(1), &free, "1");
    assert!(open.contains("locked by process"), "{open}");
    cluster.kill(1);
    let other = start(4, &cluster.dir(1), &free, "1");
    assert!(other.contains("directory of node 1"), "{other}");
    let foreign = start(1, &cluster.dir(1), &free, "7");
    assert!(foreign.contains("belongs to cluster 1"), "{foreign}");

    // Bytes that are no message change nothing.
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x01"]
    {
        let mut stream = TcpStream::connect(cluster.address(2)).unwrap();
        // The node may have closed it already.
        let _ = stream.write_all(bytes);
    }
    cluster.start(1);
    let mut appender = Appender::new(&cluster);
    appender.append(5).await;
    appender.check().await;
}
