//! The nodes with their hosts and disks, and what is done to them.
//!
//! *Owns*: which node has power, runs, is stopped; carrying out a fault and mending it. *May not
//! touch*: which faults come when (`faults.rs`), clients.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use inkstone_powerloss::kernel::machine::FsKind;

use crate::disk::{NodeDisk, Trouble};
use crate::faults::{Fault, Kind, Target};
use crate::network::Hosts;
use crate::node::{Node, NodeOptions};
use inkstone_host::Signal;

/// Of an election that is interrupted: how long a flush of the voters takes, and how long the old
/// leader stands still at most.
const SLOW_VOTE: Duration = Duration::from_millis(150);
const ELECTS_IN: Duration = Duration::from_secs(2);

struct Member {
    disk: NodeDisk,
    process: Option<Node>,
    has_power: bool,
    /// Its disk has failed in this round: then it may end by itself.
    may_end: bool,
    is_full: bool,
}

impl Member {
    /// Sends its process a signal, if it runs.
    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        self.process.as_mut().map_or(Ok(()), |node| node.signal(signal))
    }
}

/// What a run is made of.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    pub nodes: usize,
    pub kind: FsKind,
    /// The program `replicated-log`, and more of its arguments.
    pub program: PathBuf,
    /// For all nodes.
    pub arguments: Vec<String>,
    /// Where work directories are made.
    pub parent: PathBuf,
    /// Where nodes write what they have to say.
    pub logs: PathBuf,
    /// Decides clocks.
    pub seed: u64,
    /// How long an opening may take, and after all is mended an answer, and equal states. On a
    /// machine that is busy with other things it must be far longer than any of these takes: what
    /// is late is a broken promise.
    pub patience: Duration,
}

/// Why a round cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trap {
    Broken(String),
    /// This machine fails us: it says nothing about the cluster.
    Machine(String),
}

impl From<String> for Trap {
    fn from(why: String) -> Self {
        Self::Machine(why)
    }
}

pub struct Cluster {
    // In this order: processes and disks go before the hosts.
    members: Vec<Member>,
    hosts: Hosts,
    options: NodeOptions,
    rng: fastrand::Rng,
    /// What was done, in words, with its time.
    story: Vec<String>,
    start: std::time::Instant,
    is_made: bool,
    patience: Duration,
}

impl Cluster {
    /// Hosts, disks and the first start of all nodes.
    pub fn make(options: &ClusterOptions) -> Result<Self, Trap> {
        let hosts = Hosts::make(options.nodes)?;
        let addresses = (1..=options.nodes).map(|id| hosts.address(id)).collect();
        let node_options = NodeOptions {
            program: options.program.clone(),
            arguments: options.arguments.clone(),
            logs: options.logs.clone(),
            addresses,
        };
        let mut members = Vec::new();
        for _ in 0..options.nodes {
            let disk = NodeDisk::make(&options.parent, options.kind)?;
            members.push(Member {
                disk,
                process: None,
                has_power: true,
                may_end: false,
                is_full: false,
            });
        }
        let mut made = Self {
            members,
            hosts,
            options: node_options,
            rng: fastrand::Rng::with_seed(options.seed),
            story: Vec::new(),
            start: std::time::Instant::now(),
            is_made: false,
            patience: options.patience,
        };
        (1..=options.nodes).try_for_each(|id| made.start(id))?;
        made.wait_until_all_listen()?;
        made.is_made = true;
        Ok(made)
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.options.addresses.clone()
    }

    /// What was done since the last call, in words.
    pub fn take_story(&mut self) -> Vec<String> {
        std::mem::take(&mut self.story)
    }

    /// From now on the times of the story count.
    pub fn begin_story(&mut self) {
        self.start = std::time::Instant::now();
        self.story.clear();
        self.members.iter_mut().for_each(|member| member.may_end = false);
    }

    fn tell(&mut self, words: impl std::fmt::Display) {
        self.story.push(format!("{:>6} ms: {words}", self.start.elapsed().as_millis()));
    }

    fn member(&mut self, id: usize) -> &mut Member {
        &mut self.members[id - 1]
    }

    /// Starts a node that does not run and has power.
    fn start(&mut self, id: usize) -> Result<(), String> {
        let member = &self.members[id - 1];
        if member.process.is_some() || !member.has_power {
            return Ok(());
        }
        let directory = member.disk.directory();
        let namespace = self.hosts.namespace(id);
        // A clock of another start: what was kept of the old one must mean nothing.
        let monotonic_s = self.rng.u32(..1_000_000);
        let is_new = !self.is_made;
        let node = Node::start(&self.options, id, &namespace, &directory, monotonic_s, is_new)?;
        self.member(id).process = Some(node);
        self.tell(format_args!("node {id} starts, its clock {monotonic_s} s ahead"));
        Ok(())
    }

    fn wait_until_all_listen(&mut self) -> Result<(), Trap> {
        for member in &mut self.members {
            if let Some(node) = &mut member.process {
                node.wait_until_it_listens(self.patience).map_err(Trap::Broken)?;
            }
        }
        Ok(())
    }

    fn kill(&mut self, id: usize) -> Result<(), String> {
        let Some(mut node) = self.member(id).process.take() else { return Ok(()) };
        node.signal(Signal::Kill)?;
        node.wait()?;
        self.tell(format_args!("node {id} is killed"));
        Ok(())
    }

    /// Cuts the power of these nodes at one instant: first nothing leaves them any more, then their
    /// disks stop, then they die.
    fn cut_power(&mut self, ids: &[usize]) -> Result<(), String> {
        let ids: Vec<_> =
            ids.iter().copied().filter(|&id| self.members[id - 1].has_power).collect();
        self.hosts.set_ports(&ids, false)?;
        ids.iter().for_each(|&id| self.member(id).disk.cut());
        for &id in &ids {
            self.member(id).has_power = false;
            if let Some(node) = &mut self.member(id).process {
                node.signal(Signal::Kill)?;
            }
        }
        for &id in &ids {
            let member = self.member(id);
            member.disk.release();
            if let Some(node) = member.process.take() {
                node.wait()?;
            }
        }
        self.tell(format_args!("the power of {ids:?} is cut"));
        Ok(())
    }

    /// Mounts what a cut has left, on all these nodes at once, and starts them.
    fn restore_power(&mut self, ids: &[usize], seed: u64) -> Result<(), Trap> {
        let ids: Vec<_> =
            ids.iter().copied().filter(|&id| !self.members[id - 1].has_power).collect();
        let boots = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .members
                .iter_mut()
                .enumerate()
                .filter(|(place, _)| ids.contains(&(place + 1)))
                .map(|(place, member)| {
                    let disk = &mut member.disk;
                    let seed = seed ^ (place as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    (place + 1, scope.spawn(move || disk.boot_after(seed)))
                })
                .collect();
            let end = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err("the thread that mounts has panicked".into()))
            };
            threads.into_iter().map(|(id, thread)| (id, end(thread))).collect::<Vec<_>>()
        });
        for (id, boot) in boots {
            let left = boot?.map_err(|why| {
                Trap::Broken(format!(
                    "the file system of node {id} does not come up after a power cut: {why}"
                ))
            })?;
            let member = self.member(id);
            member.has_power = true;
            member.is_full = false;
            self.hosts.set_ports(&[id], true)?;
            self.tell(format_args!(
                "node {id} has power; {} of {} units that were not flushed are there ({})",
                left.kept, left.units, left.subset
            ));
            self.start(id)?;
        }
        Ok(())
    }

    /// Begins a fault. Returns the node that it hits, for [`Cluster::end`].
    pub fn begin(
        &mut self,
        fault: &Fault,
        who_leads: &dyn Fn() -> Option<usize>,
    ) -> Result<usize, Trap> {
        let leader = who_leads();
        let id = match fault.target {
            Target::Node(id) => id,
            Target::Leader(id) => leader.unwrap_or(id),
        };
        let mut rng = fastrand::Rng::with_seed(fault.seed);
        let all: Vec<_> = (1..=self.members.len()).collect();
        self.tell(format_args!("{} hits node {id} (leader: {leader:?})", fault.kind));
        let member = self.member(id);
        match fault.kind {
            Kind::PowerAll => self.cut_power(&all)?,
            Kind::PowerOne => self.cut_power(&[id])?,
            Kind::Kill => self.kill(id)?,
            Kind::Stop => member.signal(Signal::Stop)?,
            Kind::LinkDown => self.hosts.set_link(id, false)?,
            Kind::Halves => {
                // The one that is hit is in the minority; clients see both sides.
                let mut others: Vec<_> = all.iter().copied().filter(|&other| other != id).collect();
                rng.shuffle(&mut others);
                let beside = others.len() / 2;
                let majority = others.split_off(beside.saturating_sub(1));
                self.hosts.part(&[&[id], &others[..]].concat(), &majority)?;
            }
            Kind::WritesFail | Kind::FlushesFail | Kind::SlowFlushes => {
                member.may_end |= fault.kind != Kind::SlowFlushes;
                member.disk.trouble(match fault.kind {
                    Kind::WritesFail => Trouble::WritesFail(rng.u64(..20)),
                    Kind::FlushesFail => Trouble::FlushesFail(rng.u64(..10)),
                    _ => Trouble::SlowFlushes(Duration::from_millis(rng.u64(2..120))),
                });
            }
            Kind::Full if member.has_power && !member.is_full => {
                member.may_end = true;
                member.is_full = true;
                member.disk.fill()?;
            }
            Kind::Full => {}
            Kind::Election => self.interrupt_election(leader, who_leads, fault.seed)?,
        }
        Ok(id)
    }

    /// The leader stands still, cut off from all, until another node leads. At that instant the new
    /// leader is parted from all nodes, all who may have voted lose their power, and the old leader
    /// goes on. It leads no more, if one of a majority remembers its vote. Flushes of the others
    /// are slow meanwhile, so that a vote that is not waited for is lost.
    fn interrupt_election(
        &mut self,
        old: Option<usize>,
        who_leads: &dyn Fn() -> Option<usize>,
        seed: u64,
    ) -> Result<(), Trap> {
        let Some(old) = old.filter(|&old| self.members[old - 1].process.is_some()) else {
            return Ok(());
        };
        let others: Vec<_> = (1..=self.members.len()).filter(|&id| id != old).collect();
        for &id in &others {
            self.member(id).disk.trouble(Trouble::SlowFlushes(SLOW_VOTE));
        }
        // Off the network too: what the new leader says to it would wait in its kernel.
        self.hosts.set_ports(&[old], false)?;
        self.member(old).signal(Signal::Stop)?;
        let start = std::time::Instant::now();
        let mut new = None;
        while new.is_none() && start.elapsed() < ELECTS_IN {
            std::thread::sleep(Duration::from_millis(1));
            new = who_leads().filter(|&id| id != old);
        }
        if let Some(new) = new {
            let voters: Vec<_> = others.iter().copied().filter(|&id| id != new).collect();
            self.hosts.part(&[new], &[&voters[..], &[old]].concat())?;
            self.cut_power(&voters)?;
        }
        self.hosts.set_ports(&[old], true)?;
        self.tell(format_args!("after node {old} stood still, this one led: {new:?}"));
        for id in others {
            self.member(id).disk.repair();
        }
        self.member(old).signal(Signal::Continue)?;
        let all: Vec<_> = (1..=self.members.len()).collect();
        self.restore_power(&all, seed)
    }

    /// Mends a fault that has hit node `id`.
    ///
    /// # Errors
    /// A file system or node that does not come up again, which is a finding; or this machine fails
    /// us.
    pub fn end(&mut self, fault: &Fault, id: usize) -> Result<(), Trap> {
        let all: Vec<_> = (1..=self.members.len()).collect();
        self.tell(format_args!("{} of node {id} ends", fault.kind));
        match fault.kind {
            Kind::PowerAll => self.restore_power(&all, fault.seed)?,
            Kind::PowerOne => self.restore_power(&[id], fault.seed)?,
            Kind::Kill => self.start(id)?,
            Kind::Stop => self.member(id).signal(Signal::Continue)?,
            Kind::LinkDown => self.hosts.set_link(id, true)?,
            Kind::Halves | Kind::Election => self.hosts.heal()?,
            Kind::SlowFlushes => drop(self.member(id).disk.repair()),
            Kind::WritesFail | Kind::FlushesFail => {
                // What the kernel has in memory may differ from the medium now, so the machine
                // starts again.
                self.cut_power(&[id])?;
                let fired = self.member(id).disk.repair();
                self.tell(format_args!("{fired} requests to the disk of node {id} failed"));
                self.restore_power(&[id], fault.seed)?;
            }
            Kind::Full => self.make_room(id)?,
        }
        Ok(())
    }

    fn make_room(&mut self, id: usize) -> Result<(), Trap> {
        let member = self.member(id);
        if !std::mem::take(&mut member.is_full) || !member.has_power {
            return Ok(());
        }
        if let Err(why) = member.disk.free() {
            // A write has failed meanwhile, and the kernel made the file system read-only: the
            // machine starts again, on a sound disk.
            member.disk.repair();
            self.tell(format_args!("node {id} gets no room: {why}"));
            self.cut_power(&[id])?;
            let seed = self.rng.u64(..);
            return self.restore_power(&[id], seed);
        }
        // A node whose disk was full may have refused to go on: it goes on after a start.
        self.kill(id)?;
        Ok(self.start(id)?)
    }

    /// Mends everything, and waits until each node has its directory open.
    ///
    /// # Errors
    /// A node that ended by itself though its disk was sound, or does not open again.
    pub fn mend(&mut self, seed: u64) -> Result<(), Trap> {
        self.hosts.heal()?;
        let all: Vec<_> = (1..=self.members.len()).collect();
        for &id in &all {
            self.hosts.set_link(id, true)?;
            self.make_room(id)?;
            self.member(id).signal(Signal::Continue)?;
        }
        self.restore_power(&all, seed)?;
        for id in all {
            let member = self.member(id);
            if let Some(node) = &mut member.process
                && let Some(status) = node.ended()
            {
                if !member.may_end {
                    return Err(Trap::Broken(format!("node {id} ended by itself: {status}")));
                }
                self.tell(format_args!("node {id} has ended, as its disk had failed: {status}"));
                self.kill(id)?;
            }
            self.start(id)?;
        }
        self.wait_until_all_listen()
    }

    /// Copies what nodes have on their disks to `to`, as far as it can be read.
    pub fn keep_directories(&self, to: &Path) -> Vec<String> {
        let keep = |(place, member): (usize, &Member)| {
            let name = format!("node-{}", place + 1);
            inkstone_powerloss::keep::keep(&member.disk.directory(), to, &name).err()
        };
        self.members.iter().enumerate().filter_map(keep).collect()
    }

    /// Ends all nodes and removes everything.
    pub fn remove(mut self) -> Result<(), String> {
        let mut first = Ok(());
        for id in 1..=self.members.len() {
            first = first.and(self.kill(id));
        }
        for member in self.members.drain(..) {
            first = first.and(member.disk.remove());
        }
        first
    }
}
