//! The connections that come to a node: each is one call after the other.
//!
//! *Owns*: accepting, and ending connections. *May not touch*: what a call means (`node.rs`,
//! `answers.rs`).

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::node::Node;
use crate::wire::{Answer, Call, read, write};

/// A connection on which nothing comes for so long belongs to a machine that is gone.
const IDLE: Duration = Duration::from_secs(60);
/// How long calls may take that are under way when the node stops.
const GRACE: Duration = Duration::from_secs(1);

/// Answers, for the groups of a node, what comes until `stop` is ready; then it takes no more, and
/// gives the calls that are under way a second.
pub async fn serve(groups: &Arc<[Node]>, listener: TcpListener, stop: impl Future<Output = ()>) {
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
                    let (groups, mut stopped) = (Arc::clone(groups), stopped.clone());
                    connections.spawn(async move {
                        // A connection that fails concerns its client, who hears of it.
                        let _ = calls(&groups, stream, &mut stopped).await;
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
    groups: &[Node],
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
                let answer = match groups.get(usize::from(to.group)) {
                    Some(node) => node.receive(to, message).await,
                    None => Err(no_group(to.group)),
                };
                write(&mut stream, &answer).await?;
            }
            Call::Question(group, question) => {
                let answer = match groups.get(usize::from(group)) {
                    Some(node) => node.answer(question).await,
                    None => Answer::Refused(no_group(group)),
                };
                write(&mut stream, &answer).await?;
            }
        }
    }
}

fn no_group(group: u16) -> String {
    format!("there is no group {group} here: all nodes must have the same --groups")
}
