//! The network of a cluster: a network namespace for each node, one more with a bridge that joins
//! them, and a device of the bridge for the clients.
//!
//! *Owns*: the namespaces, their devices and addresses, and that a killed run leaves none. *May not
//! touch*: what runs in them.
//!
//! The kernel carries all packets. A link that is down, a node without power and a parted network
//! are the kernel's own: a device that is down, or a route to nowhere.
//!
//! Names have the number of this process in them. A later start removes the namespaces of processes
//! that are gone, after it has killed what still runs in them. Devices go with their namespaces.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

const PREFIX: &str = "ink";
const PORT: u16 = 7000;
/// The last byte of the clients' address; nodes have their ids.
const CLIENTS: u8 = 100;
/// Networks to try: other runs have some.
const NETWORKS: u32 = 250;
/// The number of the namespace that has the bridge; nodes count from 1.
const BRIDGE: usize = 0;

/// All hosts of a cluster, and the bridge between them. Dropping it removes them; end first what
/// runs in them.
pub struct Hosts {
    base: String,
    network: u8,
    nodes: usize,
}

pub fn missing() -> Option<String> {
    for tool in ["ip", "nsenter", "setpriv", "unshare"] {
        let version = if tool == "ip" { "-V" } else { "--version" };
        if !Command::new(tool).arg(version).output().is_ok_and(|said| said.status.success()) {
            return Some(format!("{tool} is not installed (packages iproute2 and util-linux)"));
        }
    }
    let tried = Hosts::make(1).err();
    tried.map(|why| format!("no network of our own (root, veth and bridge are needed): {why}"))
}

impl Hosts {
    pub fn make(nodes: usize) -> Result<Self, String> {
        sweep()?;
        static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let turn = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 26;
        let base = format!("{PREFIX}{}{}", std::process::id(), char::from(b'a' + turn as u8));
        let mut hosts = Self { base, network: 0, nodes };
        hosts.build()?;
        Ok(hosts)
    }

    fn build(&mut self) -> Result<(), String> {
        ip(&["netns", "add", &self.namespace(BRIDGE)])?;
        self.within(BRIDGE, "link add name wire type bridge\nlink set dev wire up")?;
        // The clients first: their address says whether the network is free.
        let (clients, here) = (format!("{}c", self.base), std::process::id());
        self.join(BRIDGE, &format!("{clients} netns {here}"))?;
        let taken = ip(&["-4", "-o", "address"])?;
        let mut networks = (0..NETWORKS).map(|step| ((here + step) % NETWORKS) as u8);
        self.network = networks
            .find(|network| !taken.contains(&format!("10.213.{network}.")))
            .ok_or("no network 10.213.x.0/24 is free")?;
        let address = format!("10.213.{}.{CLIENTS}/24", self.network);
        ip(&["address", "add", &address, "dev", &clients])?;
        ip(&["link", "set", "dev", &clients, "up"])?;
        for node in 1..=self.nodes {
            let (name, address) = (self.namespace(node), self.address(node).ip());
            ip(&["netns", "add", &name])?;
            self.join(node, &format!("net netns {name}"))?;
            self.within(
                node,
                &format!(
                    "link set dev lo up\naddress add {address}/24 dev net\nlink set dev net up"
                ),
            )?;
        }
        Ok(())
    }

    /// Makes a device that is joined to the bridge, at the port with the number of the node.
    fn join(&self, node: usize, device: &str) -> Result<(), String> {
        let add = format!("link add name port{node} type veth peer name {device}");
        self.within(BRIDGE, &format!("{add}\nlink set dev port{node} master wire up"))
    }

    pub fn namespace(&self, node: usize) -> String {
        format!("{}n{node}", self.base)
    }

    pub fn address(&self, node: usize) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 213, self.network, node as u8)), PORT)
    }

    /// The link of a node, at its end.
    pub fn set_link(&self, node: usize, is_up: bool) -> Result<(), String> {
        self.within(node, &format!("link set dev net {}", up_or_down(is_up)))
    }

    /// Takes the ports of nodes at the bridge down, or up: nothing leaves or reaches a machine that
    /// has no power.
    pub fn set_ports(&self, nodes: &[usize], is_up: bool) -> Result<(), String> {
        let line = |node| format!("link set dev port{node} {}\n", up_or_down(is_up));
        self.within(BRIDGE, &nodes.iter().map(line).collect::<String>())
    }

    /// These nodes and those hear nothing of each other any more: what each sends to the other side
    /// has a route to nowhere, also on connections that exist. Clients see all.
    pub fn part(&self, these: &[usize], those: &[usize]) -> Result<(), String> {
        for (from, to) in [(these, those), (those, these)] {
            let line =
                |node: &usize| format!("route replace blackhole {}\n", self.address(*node).ip());
            let lines: String = to.iter().map(line).collect();
            from.iter().try_for_each(|node| self.within(*node, &lines))?;
        }
        Ok(())
    }

    /// All nodes hear each other again, unless a link is down or a node has no power.
    pub fn heal(&self) -> Result<(), String> {
        (1..=self.nodes).try_for_each(|node| self.within(node, "route flush type blackhole"))
    }

    /// Carries out commands of `ip`, one a line, in a namespace.
    fn within(&self, node: usize, lines: &str) -> Result<(), String> {
        batch(&self.namespace(node), lines)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for node in BRIDGE..=self.nodes {
            let name = self.namespace(node);
            if Path::new("/run/netns").join(&name).exists()
                && let Err(why) = ip(&["netns", "delete", &name])
            {
                eprintln!("the next start removes {name}: {why}");
            }
        }
    }
}

fn up_or_down(is_up: bool) -> &'static str {
    if is_up { "up" } else { "down" }
}

fn batch(namespace: &str, lines: &str) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("ip: {error}");
    let mut command = Command::new("ip");
    command.args(["-n", namespace, "-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).spawn().map_err(fail)?;
    // Dropped after it was written: `ip` sees the end.
    let written = child.stdin.take().map_or(Ok(()), |mut to| to.write_all(lines.as_bytes()));
    let output = child.wait_with_output().map_err(fail)?;
    if output.status.success() {
        return written.map_err(fail);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip -n {namespace}: {}: {}", lines.trim().replace('\n', "; "), said.trim()))
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), said.trim()))
}

/// Removes what killed runs left.
pub fn sweep() -> Result<(), String> {
    for line in ip(&["netns", "list"])?.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let Some(owner) = owner_of(name) else { continue };
        if Path::new("/proc").join(owner).exists() {
            continue;
        }
        for process in ip(&["netns", "pids", name])?.split_whitespace() {
            // Only nodes of that run are in there.
            if let Ok(process) = process.parse() {
                let _ = inkstone_host::signal_process(process, inkstone_host::Signal::Kill);
            }
        }
        ip(&["netns", "delete", name])?;
        println!("removed {name}, which a killed run has left");
    }
    Ok(())
}

/// `123` of `ink123an2`; `None`: the name is not one of ours.
fn owner_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(PREFIX)?;
    let (owner, tail) = rest.split_at(rest.find(|byte: char| !byte.is_ascii_digit())?);
    let node = tail.strip_prefix(|byte: char| byte.is_ascii_lowercase())?.strip_prefix('n')?;
    (!owner.is_empty() && node.parse::<usize>().is_ok()).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ours_or_not() {
        assert_eq!(owner_of("ink123an2"), Some("123"));
        for other in ["ink123n2", "inkan2", "ink1an", "inka", "blue", "ink12bnx", ""] {
            assert_eq!(owner_of(other), None, "{other}");
        }
    }
}
