//! The hosts: a network namespace for each node, and one more device for the clients.
//!
//! *Owns*: the namespaces, their devices and addresses, and that a killed run leaves none. *May not
//! touch*: what runs in them.
//!
//! Names have the number of this process in them. A later start removes the namespaces of processes
//! that are gone, after it has killed what still runs in them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use inkstone_host::Tunnel;

use super::switch::Switch;

const PREFIX: &str = "ink";
const PORT: u16 = 7000;
/// The last byte of the clients' address; nodes have their ids.
const CLIENTS: u8 = 100;
/// Large, so that few packets carry a snapshot.
const MTU_BYTES: &str = "16000";
/// Networks to try: other runs have some.
const NETWORKS: u32 = 250;

/// All hosts of a cluster, and the wire between them. Dropping it removes them; end first what runs
/// in them.
pub struct Hosts {
    base: String,
    network: u8,
    nodes: usize,
    switch: Option<Switch>,
}

pub fn missing() -> Option<String> {
    for tool in ["ip", "nsenter", "setpriv", "unshare"] {
        let version = if tool == "ip" { "-V" } else { "--version" };
        if !Command::new(tool).arg(version).output().is_ok_and(|said| said.status.success()) {
            return Some(format!("{tool} is not installed (packages iproute2 and util-linux)"));
        }
    }
    match Tunnel::create(&format!("{PREFIX}{}x", std::process::id())) {
        Ok(_) => None,
        Err(error) => Some(format!("no network devices of our own: {error}")),
    }
}

impl Hosts {
    pub fn make(nodes: usize, seed: u64) -> Result<Self, String> {
        sweep()?;
        static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let turn = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 26;
        let base = format!("{PREFIX}{}{}", std::process::id(), char::from(b'a' + turn as u8));
        let mut hosts = Self { base, network: 0, nodes, switch: None };
        hosts.build(seed)?;
        Ok(hosts)
    }

    fn build(&mut self, seed: u64) -> Result<(), String> {
        let mut tunnels = Vec::new();
        let mut numbers = Vec::new();
        // The clients first: their address says whether the network is free.
        let device = format!("{}c", self.base);
        let clients = Tunnel::create(&device).map_err(|error| error.to_string())?;
        let taken = ip(&["-4", "-o", "address"])?;
        let first = std::process::id();
        let mut networks = (0..NETWORKS).map(|step| ((first + step) % NETWORKS) as u8);
        self.network = networks
            .find(|network| !taken.contains(&format!("10.213.{network}.")))
            .ok_or("no network 10.213.x.0/24 is free")?;
        let address = format!("10.213.{}.{CLIENTS}/24", self.network);
        ip(&["address", "add", &address, "dev", &device])?;
        ip(&["link", "set", "dev", &device, "mtu", MTU_BYTES, "up"])?;
        for node in 1..=self.nodes {
            let name = self.namespace(node);
            ip(&["netns", "add", &name])?;
            tunnels.push(Tunnel::create(&name).map_err(|error| error.to_string())?);
            numbers.push(node as u8);
            ip(&["link", "set", "dev", &name, "netns", &name])?;
            ip(&["-n", &name, "link", "set", "dev", "lo", "up"])?;
            let address = format!("10.213.{}.{node}/24", self.network);
            ip(&["-n", &name, "address", "add", &address, "dev", &name])?;
            ip(&["-n", &name, "link", "set", "dev", &name, "mtu", MTU_BYTES, "up"])?;
        }
        tunnels.push(clients);
        numbers.push(CLIENTS);
        self.switch = Some(Switch::start(tunnels, numbers, seed));
        Ok(())
    }

    pub fn namespace(&self, node: usize) -> String {
        format!("{}n{node}", self.base)
    }

    pub fn address(&self, node: usize) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 213, self.network, node as u8)), PORT)
    }

    /// The wire. Its hosts are counted from 0: node 1 is 0, and the clients come last.
    pub fn switch(&self) -> &Switch {
        self.switch.as_ref().expect("it is there until this is dropped")
    }

    pub fn set_link(&self, node: usize, is_up: bool) -> Result<(), String> {
        let name = self.namespace(node);
        ip(&["-n", &name, "link", "set", "dev", &name, if is_up { "up" } else { "down" }]).map(drop)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        drop(self.switch.take());
        for node in 1..=self.nodes {
            let name = self.namespace(node);
            if Path::new("/run/netns").join(&name).exists()
                && let Err(why) = ip(&["netns", "delete", &name])
            {
                eprintln!("the next start removes {name}: {why}");
            }
        }
    }
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
