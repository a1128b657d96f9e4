//! The connections that come to a node: each is one call after the other.
//!
//! *Owns*: accepting, and ending connections. *May not touch*: what a call means (`node.rs`,
//! `answers.rs`).

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::node::Node;
use crate::wire::{Call, read, write};

/// A connection on which nothing comes for so long belongs to a machine that is gone.
const IDLE: Duration = Duration::from_secs(60);
/// How long calls may take that are under way when the node stops.
const GRACE: Duration = Duration::from_secs(1);

/// Answers what comes until `stop` is ready; then it takes no more, and gives the calls that are
/// under way a second.
pub async fn serve(node: &Node, listener: TcpListener, stop: impl Future<Output = ()>) {
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next() => (),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (node, mut stopped) = (node.clone(), stopped.clone());
                    connections.spawn(async move {
                        // A connection that fails concerns its client, who hears of it.
                        let _ = calls(&node, stream, &mut stopped).await;
                    });
                }
                // Too many open files, for example: that passes.
                Err(why) => {
                    eprintln!("a connection was not accepted: {why}");
                    sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    stopping.send_replace(true);
    let _ = timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
}

async fn calls(
    node: &Node,
    mut stream: TcpStream,
    stopped: &mut watch::Receiver<bool>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let call = tokio::select! {
            biased;
            _ = stopped.wait_for(|is_so| *is_so) => return Ok(()),
            call = timeout(IDLE, read(&mut stream)) => call??,
        };
        match call {
            Call::Message(to, message) => {
                write(&mut stream, &node.receive(to, message).await).await?;
            }
            Call::Question(question) => {
                write(&mut stream, &node.answer(question).await).await?;
            }
        }
    }
}
