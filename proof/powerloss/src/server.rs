//! A server as a writer and a reader: a daemon on the disk that is crashed, and programs that talk
//! to it.
//!
//! *Owns*: the script that starts a daemon, waits until it is ready and runs a program beside it.
//! *May not touch*: namespaces, crashes, judging ([`crate::any`]).
//!
//! A writer is the daemon and its client, a reader the daemon, started again on what a crash has
//! left, and a program that asks it. Each runs in namespaces of its own (processes, mounts,
//! network): a kill reaches a daemon that has forked away, and the ports, sockets and lock files of
//! two runs do not meet. `/run` is empty in each. There the commands find:
//!
//! | `$DIR`, or `{dir}` | the directory that is crashed, as `/run/disk` |
//! |---|---|
//! | `$RUN` | a directory in memory, for sockets, lock files and the like: `/run/own` |
//! | `$PORT` | a port that nobody uses; the network is a loopback device |

use std::io::Read as _;
use std::path::Path;
use std::sync::Mutex;

use inkstone_host::open_plain;
use inkstone_io::is_root;

use crate::any::{PLACEHOLDER, READY, Shell, quoted};
use crate::medium::RunError;
use crate::process::{Complaint, hear_all};

const PORT: u16 = 7000;

/// A server as its user gives it: commands of the shell.
#[derive(Debug, Clone)]
pub struct Server {
    /// Starts the daemon on `$DIR`. It may stay in the foreground or fork away.
    pub start: String,
    /// Succeeds when the daemon can be asked.
    pub ready: String,
    /// Says the lines of a writer.
    pub client: String,
    /// Says the lines of a reader.
    pub reader: String,
    /// Ends the daemon after a reading in order. Without it the daemon is killed.
    pub stop: Option<String>,
}

/// Where the script of a server says what is at work.
const AT: &str = "run/at";
/// So much of what a daemon said is read: it may go on while that is read.
const SAID_BYTES_MAX: u64 = 16 << 20;

/// What comes before the client. What the daemon says goes to a file, since stdout is for lines.
const SCRIPT: &str = r#"
cd {dir} && mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/disk /run/own &&
    mount --no-canonicalize --bind . /run/disk && chmod 1777 /run/own && cd /run/own || exit
export DIR=/run/disk RUN=/run/own
fail() { echo "$1; the server said:" | cat - /run/said >&2; exit "${2:-1}"; }
run() {
    echo "$1" >/run/at
    sh -c "$2"
    code=$?
    [ $code = 0 ] || fail "$1 ended with exit code $code" $code
}
echo --ready >/run/at
(sh -c "$START"; echo $? >/run/ended) </dev/null >/run/said 2>&1 &
until sh -c "$READY" </dev/null >/run/asking 2>&1; do
    mv /run/asking /run/asked
    code=$(cat /run/ended 2>/dev/null)
    [ "${code:-0}" = 0 ] || fail "--start ended with exit code $code before --ready succeeded"
    sleep 0.02
done
"#;

/// What a server's script is at, and what it has said until now. `process`: the first one of its
/// namespaces, which must live.
fn at_work(process: u32) -> String {
    let read = |name: &str| {
        let root = format!("/proc/{process}/root");
        let said = Mutex::new(Complaint::default());
        if let Ok(file) = open_plain(&Path::new(&root).join(name)) {
            hear_all(file.take(SAID_BYTES_MAX), &said);
        }
        said.into_inner().unwrap_or_default().words()
    };
    let at = read(AT);
    // The last one may have been stopped before it could say anything.
    let asked = || Some(read("run/asking")).filter(|said| !said.is_empty());
    let asked = match at.as_str() {
        READY => {
            let said = asked().unwrap_or_else(|| read("run/asked"));
            format!(" did not succeed in time, and said: {said}")
        }
        _ => " was at work".to_owned(),
    };
    format!("{at}{asked}; the server said: {}", read("run/said"))
}

impl Server {
    /// The writer and the reader.
    ///
    /// # Errors
    /// This user may not make namespaces.
    pub fn shells(&self) -> Result<(Shell, Shell), RunError> {
        if !is_root() {
            let why = "a server runs in namespaces of its own, and making them needs root";
            return Err(RunError::Other(why.into()));
        }
        let run = |option: &str, command: &str| format!("run {option} {}\n", quoted(&own(command)));
        let stop = self.stop.as_deref().map(|stop| run("--stop", stop)).unwrap_or_default();
        let writer = self.beside("--client", &self.client, run("--client", &self.client));
        let read = run("--reader", &self.reader) + &stop;
        Ok((writer, self.beside("--reader", &self.reader, read)))
    }

    fn beside(&self, option: &str, said: &str, then: String) -> Shell {
        let [start, ready] = [&self.start, &self.ready].map(|command| quoted(&own(command)));
        let script = format!("export PORT={PORT} START={start} READY={ready}{SCRIPT}{then}");
        Shell { label: format!("{option} {said:?}"), command: script, at_work: Some(at_work) }
    }
}

/// A command that finds the directory where it is in these namespaces.
fn own(command: &str) -> String {
    command.replace(PLACEHOLDER, "/run/disk")
}
