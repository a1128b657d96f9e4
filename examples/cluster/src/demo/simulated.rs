//! A node in this process, on a simulated disk whose power can be cut.
//!
//! *Owns*: the cut: which bytes go out before it, and what the disk has after it. *May not touch*:
//! what the node does.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::{StreamExt, TryStreamExt};
use inkstone_sim::hooked::{Call, Hook, Hooked};
use inkstone_sim::{DiskOptions, Fate, PowerCut, SimDisk};
use replicated_log::node::{Limits, Node, NodeOptions};
use replicated_log::storage::{Identity, Storage, StorageOptions};
use replicated_log::transport::{Stream, Transport, listen};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::processes::{Processes, SEGMENT_BYTES};

pub(crate) struct SimulatedNode {
    node: Node,
    cutter: Arc<Cutter>,
    serving: JoinHandle<io::Result<()>>,
    /// The last entry in its log when it was opened.
    last: Option<u64>,
}

impl SimulatedNode {
    /// Starts a node on a new disk.
    pub(crate) async fn new(id: u64, among: &Processes) -> Result<Self, String> {
        let disk = SimDisk::new(u64::from(std::process::id()), DiskOptions::default());
        Self::start(id, disk, among).await
    }

    /// Starts a node on a disk.
    pub(crate) async fn start(id: u64, disk: SimDisk, among: &Processes) -> Result<Self, String> {
        let started = Self::start_at(among.address(id), id, disk, among.cluster_id()).await;
        started
            .map_err(|why| format!("node {id}, on the simulated disk, could not be started: {why}"))
    }

    async fn start_at(address: &str, id: u64, disk: SimDisk, cluster: u64) -> io::Result<Self> {
        let power = Power::on();
        let identity = Identity { cluster, node: id };
        let cutter =
            Arc::new(Cutter { disk: disk.clone(), power: power.clone(), wanted: Mutex::default() });
        let directory = |path| Hooked::new(disk.directory(path), Arc::clone(&cutter));
        let (log, snapshots) = (directory("/node/log"), directory("/node/snapshots"));
        let options = StorageOptions::of_segments(SEGMENT_BYTES);
        let storage = Storage::open_in(&log, &snapshots, identity, options).await?;
        // Asked of the log: openraft's metrics may not have it yet.
        let last = storage.last();
        let options =
            NodeOptions { limits: Limits::of_segments(SEGMENT_BYTES), ..NodeOptions::default() };
        let node = Node::start(storage, options, power.transport()).await?;

        let (served, wires) = (node.clone(), power.clone());
        let incoming = listen(address).await?.map_ok(move |stream| wires.wire(stream));
        let serving =
            tokio::spawn(
                async move { served.serve(incoming.boxed(), std::future::pending()).await },
            );
        Ok(Self { node, cutter, serving, last })
    }

    /// The last entry that its log had when it was opened.
    pub(crate) fn last(&self) -> u64 {
        self.last.unwrap_or(0)
    }

    /// Asks another node to lead, if this one does.
    pub(crate) async fn hand_over(&self, to: u64) -> Result<(), String> {
        self.node.raft().trigger().transfer_leader(to).await.map_err(|why| why.to_string())
    }

    /// Cuts the power in the middle of a write: the node has no connections any more, and is gone.
    /// Gives the disk as it is found when the power is back, without all that was not flushed, and
    /// how many items those were.
    pub(crate) async fn cut_power(self) -> Result<(SimDisk, usize), String> {
        let cut = self.cutter.cut().await.map_err(|why| format!("the power was not cut: {why}"))?;
        let found = cut.state(|_, _| Fate::Dropped);
        self.serving.abort();
        // It ends on its old disk, which nobody looks at again.
        let _ = self.node.raft().shutdown().await;
        Ok((found, cut.items().len()))
    }
}

/// Cuts the power when a write is on its way and not flushed.
#[derive(Debug)]
struct Cutter {
    disk: SimDisk,
    power: Power,
    /// Who wants it.
    wanted: Mutex<Option<oneshot::Sender<PowerCut>>>,
}

impl Cutter {
    async fn cut(&self) -> Result<PowerCut, oneshot::error::RecvError> {
        let (sender, cut) = oneshot::channel();
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        cut.await
    }
}

impl Hook for Cutter {
    /// Before a write completes, its bytes are on their way.
    fn before(&self, call: &Call<'_>) -> inkstone_io::Result<()> {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(call, Call::Complete)
            && wanted.is_some()
            && !self.disk.unflushed().is_empty()
            && let Some(wanted) = wanted.take()
        {
            // First the connections: what the node says from here on, of a disk that goes on in
            // memory, reaches nobody.
            self.power.cut();
            // Nobody is there when the demonstration has just ended.
            let _ = wanted.send(self.disk.power_cut());
        }
        Ok(())
    }
}

/// Whether the node's machine has power.
#[derive(Debug, Clone)]
struct Power(Arc<AtomicBool>);

impl Power {
    fn on() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    fn cut(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// What a write says was durable before this is asked: so it is on a disk whose power was cut
    /// after it.
    fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::ConnectionReset, "the power is cut"))
    }

    fn wire(&self, stream: TcpStream) -> Wire {
        Wire { stream, power: self.clone() }
    }

    /// Connections to others, that end with the power.
    fn transport(&self) -> Transport {
        let power = self.clone();
        Transport::new(move |address| {
            let power = power.clone();
            Box::pin(async move {
                power.check()?;
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(power.wire(stream)) as Box<dyn Stream>)
            })
        })
    }
}

/// A connection of the node: once the power is cut, nothing comes or goes.
struct Wire {
    stream: TcpStream,
    power: Power,
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.power.check()?;
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.power.check()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.power.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
