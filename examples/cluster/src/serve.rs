//! A node as a process: from its arguments to its end.
//!
//! *Owns*: the order in which wrong use is noticed, what the process says, and signals. *May not
//! touch*: what the node does.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use replicated_log::client::{Client, ClientOptions};
use replicated_log::node::Node;
use replicated_log::storage::{Identity, Storage, StorageOptions};
use replicated_log::transport::{Transport, listen};
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::Serve;

/// Runs a node until a signal stops it, or its engine ends by itself.
pub(crate) async fn serve(serve: Serve) -> io::Result<()> {
    let id = serve.id;
    let members = serve.cluster.as_ref().map(|members| &members.0);
    let listed = members.map(|members| members.get(&id).ok_or_else(|| unlisted(id))).transpose()?;
    let advertised =
        serve.advertise.clone().or_else(|| listed.cloned()).unwrap_or_else(|| serve.listen.clone());
    if listed.is_some_and(|listed| *listed != advertised) {
        return Err(invalid(format!(
            "--cluster and --advertise name different addresses for node {id}"
        )));
    }
    // Before the directory is touched: two nodes on one address are two nodes on one command line,
    // more often than not.
    let incoming = listen(&serve.listen).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let identity = Identity { cluster: serve.cluster_id, node: id };
    let storage =
        Storage::open(&serve.dir, identity, StorageOptions::of_segments(serve.segment_bytes))
            .await?;
    let node = Node::start(storage, serve.options(), serve.tls.transport()?).await?;
    println!("node {id} listens on {}, its data is in {}", serve.listen, serve.dir.display());
    if let Some(members) = members.filter(|_| serve.bootstrap) {
        begin(&node, members.clone()).await?;
    }
    let others = members
        .cloned()
        .unwrap_or_default()
        .into_iter()
        .filter(|(other, _)| *other != id)
        .collect();
    let reporter = tokio::spawn(report(node.clone(), id, advertised));
    let searcher = tokio::spawn(search(node.clone(), id, others, serve.tls.transport()?));

    let mut failure = None;
    let stop = async {
        tokio::select! {
            biased;
            _ = terminate.recv() => eprintln!("node {id} stops: SIGTERM"),
            _ = interrupt.recv() => eprintln!("node {id} stops: Ctrl-C"),
            ended = node.ended() => failure = ended,
        }
    };
    node.serve(incoming, stop).await?;
    reporter.abort();
    searcher.abort();
    match failure {
        None => node.stop().await,
        Some(why) => Err(io::Error::other(why)),
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn unlisted(id: u64) -> io::Error {
    invalid(format!(
        "node {id} is not in --cluster: the first members are all there; a node that joins later has no --cluster"
    ))
}

/// Begins the cluster, unless it has begun.
async fn begin(node: &Node, members: BTreeMap<u64, String>) -> io::Result<()> {
    match node.init(members).await {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        began => began,
    }
}

/// While no leader is known, says why the others cannot be reached: a wrong address, or a
/// certificate that is not believed.
async fn search(node: Node, id: u64, others: BTreeMap<u64, String>, transport: Transport) {
    let mut said = BTreeMap::new();
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        if node.raft().metrics().borrow_watched().current_leader.is_some() {
            said.clear();
            continue;
        }
        for (other, address) in &others {
            let mut client =
                Client::new(vec![address.clone()], transport.clone(), ClientOptions::default());
            let why = client.status(address).await.err();
            if let Some(why) = &why
                && said.get(other) != Some(why)
            {
                eprintln!("node {id} knows no leader, and does not reach node {other}: {why}");
                said.insert(*other, why.clone());
            }
        }
    }
}

/// Says what a person would want to know, as it happens.
async fn report(node: Node, id: u64, advertised: String) {
    let mut metrics = node.raft().metrics();
    let (mut leader, mut members, mut snapshot) = (None, Vec::new(), None);
    loop {
        {
            let now = metrics.borrow_watched();
            if now.current_leader != leader {
                leader = now.current_leader;
                match leader {
                    Some(leader) if leader == id => {
                        eprintln!("node {id} leads in term {}", now.current_term)
                    }
                    Some(leader) => {
                        eprintln!("node {id} follows node {leader} in term {}", now.current_term)
                    }
                    None => eprintln!("node {id} knows no leader"),
                }
            }
            let membership = now.membership_config.membership();
            let listed: Vec<_> = membership
                .nodes()
                .map(|(id, node)| {
                    let vote = if membership.voter_ids().any(|voter| voter == *id) {
                        ""
                    } else {
                        " (no vote)"
                    };
                    format!("{id}={}{vote}", node.addr)
                })
                .collect();
            if listed != members {
                members = listed;
                eprintln!("node {id}: the members are {}", members.join(", "));
                if membership.get_node(&id).is_some_and(|known| known.addr != advertised) {
                    eprintln!(
                        "node {id}: the others look for this node elsewhere than at {advertised}"
                    );
                }
            }
            if now.snapshot > snapshot {
                snapshot = now.snapshot;
                let index = snapshot.map_or(0, |id| id.index);
                eprintln!("node {id}: a snapshot has everything up to entry {index}");
            }
        }
        if metrics.changed().await.is_err() {
            return;
        }
        // Many changes are one line.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
