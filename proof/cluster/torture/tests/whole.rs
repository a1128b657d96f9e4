//! Whole torture runs of a stand-in: a "cluster" whose node 1 keeps everything, in a plain file,
//! and whose other nodes refuse. As long as it syncs what it acknowledges its histories are
//! linearizable; when it does not, or applies a write twice, the run must say so.
//!
//! This program is the stand-in as well: the run starts it with `serve`, as it starts the
//! replicated log.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inkstone_powerloss::kernel::machine::{self, FsKind};
use replicated_log_torture::agreement::Applied;
use replicated_log_torture::cluster::ClusterOptions;
use replicated_log_torture::history::{Call, Heard};
use replicated_log_torture::judge::{self, Judge};
use replicated_log_torture::network;
use replicated_log_torture::round::Reach;
use replicated_log_torture::run::{RunOptions, Summary, run};
use replicated_log_torture::workload::{Blindly, Door};

/// The stand-in's store: a file of lines "put KEY VALUE" and "append KEY VALUE".
struct Store {
    file: File,
    values: HashMap<String, String>,
    lies: bool,
}

impl Store {
    fn open(directory: &Path, lies: bool) -> Self {
        let path = directory.join("lines");
        let mut file =
            File::options().create(true).read(true).append(true).open(path).expect("the file");
        File::open(directory).and_then(|directory| directory.sync_all()).expect("synced");
        let mut text = Vec::new();
        file.read_to_end(&mut text).expect("read");
        let mut values = HashMap::new();
        let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        // Only whole lines count; each was synced before the next one was written.
        for line in String::from_utf8_lossy(&text[..end]).lines() {
            if apply(&mut values, line).is_none() {
                break;
            }
        }
        file.set_len(end as u64).and_then(|()| file.sync_all()).expect("cut back");
        Self { file, values, lies }
    }

    /// The answer to a line; `None`: its file has failed.
    fn answer(&mut self, line: &str) -> Option<String> {
        if let Some(key) = line.strip_prefix("get ") {
            return Some(serde_json::to_string(&self.values.get(key)).expect("text"));
        }
        self.file.write_all(format!("{line}\n").as_bytes()).ok()?;
        if !self.lies {
            self.file.sync_data().ok()?;
        }
        apply(&mut self.values, line)?;
        Some("null".into())
    }
}

fn apply(values: &mut HashMap<String, String>, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let (call, key, value) = (words.next()?, words.next()?.to_string(), words.next()?);
    match call {
        "put" => drop(values.insert(key, format!("{value}\n"))),
        "append" => *values.entry(key).or_default() += &format!("{value}\n"),
        _ => return None,
    }
    Some(())
}

fn serve(arguments: &[String]) {
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let directory = PathBuf::from(after("--dir").expect("--dir"));
    let is_first = after("--id").as_deref() == Some("1");
    let store = Arc::new(Mutex::new(Store::open(&directory, has("--lie"))));
    let listener = TcpListener::bind(after("--listen").expect("--listen")).expect("the address");
    println!("listens");
    for stream in listener.incoming().flatten() {
        let (store, loses) = (Arc::clone(&store), has("--lose-answers"));
        std::thread::spawn(move || {
            let mut output = stream.try_clone().expect("a clone");
            for (count, line) in BufReader::new(stream).lines().map_while(Result::ok).enumerate() {
                if !is_first {
                    let _ = output.write_all(b"refused\n");
                    continue;
                }
                // A store that has failed answers nothing more: the process ends, and its clients
                // know nothing.
                let Some(answer) = store.lock().expect("no panic").answer(&line) else {
                    std::process::exit(1)
                };
                if loses && count % 5 == 4 {
                    return;
                }
                let _ = output.write_all(format!("{answer}\n").as_bytes());
            }
        });
    }
}

/// A client of the stand-in.
struct Client {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    fn ask_now(&mut self, call: &Call) -> Heard {
        let limit = Duration::from_secs(1);
        if self.stream.is_none() {
            let Ok(stream) = TcpStream::connect_timeout(&self.address, limit) else {
                return Heard::NotDone;
            };
            stream.set_read_timeout(Some(limit)).expect("set");
            stream.set_nodelay(true).expect("set");
            self.stream = Some(BufReader::new(stream));
        }
        let line = match call {
            Call::Put { key, value } => format!("put {key} {value}\n"),
            Call::Append { key, value } => format!("append {key} {value}\n"),
            Call::Get { key } => format!("get {key}\n"),
        };
        let stream = self.stream.as_mut().expect("just made");
        let mut answer = String::new();
        let asked = stream
            .get_mut()
            .write_all(line.as_bytes())
            .and_then(|()| stream.read_line(&mut answer));
        match asked {
            Ok(bytes) if bytes > 0 && answer == "refused\n" => Heard::NotDone,
            Ok(bytes) if bytes > 0 => {
                Heard::Done(serde_json::from_str(answer.trim_end()).expect("an answer"))
            }
            _ => {
                self.stream = None;
                Heard::Unknown
            }
        }
    }
}

impl Door for Client {
    async fn ask(&mut self, call: Call) -> Heard {
        tokio::task::block_in_place(|| self.ask_now(&call))
    }
}

struct Sane(SocketAddr);

impl Reach for Sane {
    type Door = Client;

    fn door(&self, _: u32) -> Client {
        Client { address: self.0, stream: None }
    }

    fn leader(&self) -> Option<usize> {
        Some(1)
    }

    async fn states(&self) -> Vec<Option<Applied>> {
        vec![Some(Applied { index: None, fingerprint: 0 })]
    }
}

struct Blind(SocketAddr);

impl Reach for Blind {
    type Door = Blindly<Client>;

    fn door(&self, client: u32) -> Self::Door {
        Blindly(Sane(self.0).door(client))
    }

    fn leader(&self) -> Option<usize> {
        Some(1)
    }

    async fn states(&self) -> Vec<Option<Applied>> {
        vec![Some(Applied { index: None, fingerprint: 0 })]
    }
}

/// One of whose nodes has another state, which no client sees.
struct Differing(SocketAddr);

impl Reach for Differing {
    type Door = Client;

    fn door(&self, client: u32) -> Client {
        Sane(self.0).door(client)
    }

    fn leader(&self) -> Option<usize> {
        None
    }

    async fn states(&self) -> Vec<Option<Applied>> {
        [1, 1, 2].map(|fingerprint| Some(Applied { index: Some(9), fingerprint })).to_vec()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sane,
    Blind,
    Differing,
}

fn torture(
    work: &Path,
    kind: FsKind,
    faults: &str,
    rounds: u64,
    argument: &[&str],
    reach: Kind,
) -> Summary {
    let cluster = ClusterOptions {
        nodes: 3,
        kind,
        program: std::env::current_exe().expect("this program"),
        arguments: argument.iter().map(|argument| argument.to_string()).collect(),
        parent: std::env::temp_dir(),
        logs: work.join("logs"),
        seed: 7,
        patience: Duration::from_secs(if reach == Kind::Differing { 1 } else { 120 }),
    };
    std::fs::create_dir_all(&cluster.logs).expect("a directory");
    let options = RunOptions {
        cluster,
        kinds: faults.parse().expect("faults"),
        rounds,
        first_round: 0,
        time: None,
        renew: 4,
        clients: 4,
        keys: 3,
        pause: Duration::from_millis(2),
        keep: work.join("kept"),
        command: "the command".into(),
    };
    let judge = Judge::build(work).expect("the checker");
    let done = match reach {
        Kind::Sane => run(&options, judge, work, |cluster, _| Sane(cluster.addresses()[0])),
        Kind::Blind => run(&options, judge, work, |cluster, _| Blind(cluster.addresses()[0])),
        Kind::Differing => {
            run(&options, judge, work, |cluster, _| Differing(cluster.addresses()[0]))
        }
    };
    done.expect("this machine")
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    if arguments.get(1).map(String::as_str) == Some("serve") {
        return serve(&arguments);
    }
    if let Some(why) = machine::missing().or_else(network::missing).or_else(judge::missing) {
        return println!("NOT RUN: {why}");
    }
    let work = std::env::temp_dir().join(format!("inkstone-torture-test-{}", std::process::id()));
    let sound = |kind, faults, rounds| {
        let summary = torture(&work, kind, faults, rounds, &[], Kind::Sane);
        println!("{kind}, {faults}: {summary}");
        assert_eq!(summary.broken, Vec::<String>::new());
        assert_eq!((summary.rounds, summary.sound), (rounds, rounds));
        assert!(summary.counts.done > 20 * rounds, "{:?}", summary.counts);
        summary
    };
    sound(FsKind::Ext4, "power-all", 6);
    let all = sound(FsKind::Ext4, "all", 12);
    assert!(all.by_kind.len() >= 5, "{:?}", all.by_kind);
    for (name, argument, reach) in [
        ("a store that lies", "--lie", Kind::Sane),
        ("a blind client", "--lose-answers", Kind::Blind),
        ("a node with another state", "--sound", Kind::Differing),
    ] {
        let faults = if reach == Kind::Differing { "none" } else { "power-all" };
        let summary = torture(&work, FsKind::Ext4, faults, 8, &[argument], reach);
        println!("{name}: {summary}");
        assert!(!summary.broken.is_empty(), "{name} was not found");
        let kept = work.join("kept");
        let first = std::fs::read_dir(&kept).expect("kept").flatten().next().expect("one").path();
        for file in ["story.txt", "node-1.log"] {
            assert!(first.join(file).exists(), "{} lacks {file}", first.display());
        }
        let has = |end: &str| {
            std::fs::read_dir(&first)
                .expect("kept")
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().ends_with(end))
        };
        let is_drawn = reach != Kind::Differing;
        assert!(has(".jsonl") && has(".html") == is_drawn, "{}", first.display());
        std::fs::remove_dir_all(kept).expect("removed");
    }
    std::fs::remove_dir_all(&work).expect("removed");
}
