//! What may stand on the command line.
//!
//! *Owns*: names, defaults, and the texts of `--help`. *May not touch*: what they do.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use replicated_log::node::{Limits, NodeOptions};
use replicated_log::transport::Transport;

/// A key-value store on several machines: openraft over the Inkstone log.
#[derive(Debug, Parser)]
#[command(
    name = "replicated-log",
    version,
    after_help = "Exit codes: 0 done, 1 not done, 2 unknown (it may have happened), 64 usage."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node until SIGTERM or Ctrl-C
    Serve(Serve),
    /// Show three nodes at work: one is killed, one loses its power, nothing is left behind
    Demo,
    /// Put VALUE under KEY, in place of what is there
    Put {
        key: String,
        /// The value; `-` takes what comes on the standard input, as it is
        value: String,
        #[command(flatten)]
        cluster: Cluster,
    },
    /// Add VALUE at the end of what is under KEY
    Append {
        key: String,
        /// The value; `-` takes what comes on the standard input, as it is
        value: String,
        #[command(flatten)]
        cluster: Cluster,
    },
    /// Print what is under KEY, a line for each value that was put or appended
    Get {
        key: String,
        #[command(flatten)]
        cluster: Cluster,
    },
    /// Print changes as they are applied, all or those of KEY, until Ctrl-C
    Tail {
        key: Option<String>,
        /// The index to begin with; 0 is the first entry that is in the log
        #[arg(long, default_value_t = 0, value_name = "INDEX")]
        from: u64,
        #[command(flatten)]
        cluster: Cluster,
    },
    /// Say how each of --servers is
    Status {
        #[command(flatten)]
        cluster: Cluster,
    },
    /// Begin a cluster of MEMBERS (1=127.0.0.1:7001,2=...) on the first of --servers that answers;
    /// once
    Init {
        #[arg(value_parser = members)]
        members: Members,
        #[command(flatten)]
        cluster: Cluster,
    },
    /// Add a node, which must run already, and wait until it has caught up
    Add {
        id: u64,
        #[arg(value_parser = host_and_port)]
        address: String,
        #[command(flatten)]
        cluster: Cluster,
    },
    /// Remove a node; stop it afterwards
    Remove {
        id: u64,
        #[command(flatten)]
        cluster: Cluster,
    },
}

/// Ids and addresses.
#[derive(Debug, Clone)]
pub(crate) struct Members(pub(crate) BTreeMap<u64, String>);

fn members(text: &str) -> Result<Members, String> {
    let mut members = BTreeMap::new();
    for member in text.split(',') {
        let (id, address) =
            member.split_once('=').ok_or(format!("{member:?} is not ID=HOST:PORT"))?;
        let id: u64 = id.trim().parse().map_err(|why| format!("{id:?} is no id: {why}"))?;
        let address = host_and_port(address.trim())?;
        if members.values().any(|other| *other == address) {
            return Err(format!("{address} is there twice"));
        }
        if members.insert(id, address).is_some() {
            return Err(format!("id {id} is there twice"));
        }
    }
    Ok(Members(members))
}

fn host_and_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0) =>
        {
            Ok(text.to_owned())
        }
        _ => Err(format!("{text:?} is not HOST:PORT")),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// This node's id: a number that no other node of the cluster has, or ever had
    #[arg(long)]
    pub(crate) id: u64,
    /// The directory of this node's data
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Where to listen, for example 127.0.0.1:7001
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(crate) listen: String,
    /// The address at which the others reach this node, if it is not that of --listen
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(crate) advertise: Option<String>,
    /// The first members of a new cluster, this node among them: 1=127.0.0.1:7001,2=...
    #[arg(long, value_parser = members, value_name = "ID=HOST:PORT,...")]
    pub(crate) cluster: Option<Members>,
    /// Begin the cluster with the members of --cluster, unless it has begun; on one node
    #[arg(long, requires = "cluster")]
    pub(crate) bootstrap: bool,
    /// A number for the cluster: nodes of different ones never speak to each other
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) cluster_id: u64,
    /// Want to lead after hearing nothing for this long, or up to twice as long
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub(crate) election_ms: u64,
    /// How often a leader says that it is there
    #[arg(long, default_value_t = 250, value_name = "N")]
    pub(crate) heartbeat_ms: u64,
    /// Make a snapshot after this many entries
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) snapshot_every: u64,
    /// The size of a segment's file: from 4 MiB, a multiple of 4096
    #[arg(long, default_value_t = 64 << 20, value_name = "N", value_parser = clap::value_parser!(u64).range(4 << 20..))]
    pub(crate) segment_bytes: u64,
    #[command(flatten)]
    pub(crate) tls: TlsFiles,
}

impl Serve {
    pub(crate) fn options(&self) -> NodeOptions {
        NodeOptions {
            heartbeat: Duration::from_millis(self.heartbeat_ms),
            election: Duration::from_millis(self.election_ms),
            snapshot_every: self.snapshot_every,
            limits: Limits::of_segments(self.segment_bytes),
            ..NodeOptions::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Cluster {
    /// Nodes of the cluster; those that do not answer are passed over
    #[arg(long, value_delimiter = ',', value_parser = host_and_port, default_value = "127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003", value_name = "HOST:PORT,...")]
    pub(crate) servers: Vec<String>,
    /// How long to try
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) patience: u64,
    #[command(flatten)]
    pub(crate) tls: TlsFiles,
}

/// With the feature `tls`: files in PEM. Nodes need all three, clients the first.
#[derive(Debug, Args)]
pub(crate) struct TlsFiles {
    /// The certificates of those who may sign: turns TLS on
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// This node's, or client's, own certificate
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

impl TlsFiles {
    /// Connections as these files want them.
    pub(crate) fn transport(&self) -> std::io::Result<Transport> {
        #[cfg(feature = "tls")]
        if let Some(ca) = &self.tls_ca {
            let own = self.tls_cert.as_deref().zip(self.tls_key.as_deref());
            return Ok(
                Transport::tcp().with_tls(replicated_log::transport::Tls::of_files(ca, own)?)
            );
        }
        Ok(Transport::tcp())
    }
}
