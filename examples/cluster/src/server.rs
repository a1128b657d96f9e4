//! The connections that come to a node: each is one call after the other.
//!
//! *Owns*: accepting connections, and which call of openraft's a message is. *May not touch*: what
//! a question means (`answers.rs`).

use std::io;
use std::time::Duration;

use openraft::errors::RaftError;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::node::Node;
use crate::types::{Snapshot, TypeConfig};
use crate::wire::{Call, Connection, Message};

/// Answers for a node what comes.
pub async fn serve(node: Node, listener: TcpListener) {
    loop {
        match listener.accept().await {
            // A connection that fails concerns its client, who hears of it.
            Ok((stream, _)) => drop(tokio::spawn(calls(node.clone(), stream))),
            // Too many open files, for example: that passes.
            Err(why) => {
                eprintln!("a connection was not accepted: {why}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn calls(node: Node, stream: TcpStream) -> io::Result<()> {
    let mut connection = Connection::new(stream)?;
    let words = |why: RaftError<TypeConfig>| why.to_string();
    loop {
        match connection.receive().await? {
            Call::Message(to, _) if to != node.id => {
                let why = format!("the address of node {to} leads to node {}", node.id);
                connection.send(&Err::<(), _>(why)).await?;
            }
            Call::Message(_, Message::Append(request)) => {
                connection.send(&node.raft.append_entries(request).await.map_err(words)).await?;
            }
            Call::Message(_, Message::Vote(request)) => {
                connection.send(&node.raft.vote(request).await.map_err(words)).await?;
            }
            Call::Message(_, Message::Snapshot(vote, meta, snapshot)) => {
                let snapshot = Snapshot { meta, snapshot };
                let answer = node.raft.install_full_snapshot(vote, snapshot).await;
                connection.send(&answer.map_err(|why| why.to_string())).await?;
            }
            Call::Question(question) => connection.send(&node.answer(question).await).await?,
        }
    }
}
