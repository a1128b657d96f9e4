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

use std::time::Duration;

use inkstone_host::Network;
use inkstone_io::is_root;

use crate::any::{PLACEHOLDER, Shell, quoted};
use crate::medium::RunError;

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

/// What comes before the client. What the daemon says goes to a file, since stdout is for lines.
const SCRIPT: &str = r#"
cd {dir} && mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/disk /run/own &&
    mount --no-canonicalize --bind . /run/disk && chmod 1777 /run/own && cd /run/own || exit
export DIR=/run/disk RUN=/run/own
fail() { echo "$1; the server said: $(tail -c 400 /run/said)" >&2; exit "${2:-1}"; }
ended() { fail "$1 ended with exit code $2" "$2"; }
(sh -c "$START"; echo $? >/run/ended) </dev/null >/run/said 2>&1 &
until sh -c "$READY" </dev/null >/dev/null 2>&1; do
    code=$(cat /run/ended 2>/dev/null)
    [ "${code:-0}" = 0 ] || fail "--start ended with exit code $code before --ready succeeded"
    [ "$(date +%s)" -lt "$UNTIL" ] || fail "--ready did not succeed in time"
    sleep 0.02
done
"#;

impl Server {
    /// The writer and the reader. `limit`: how long each may take to begin.
    ///
    /// # Errors
    /// This user may not make namespaces.
    pub fn shells(&self, limit: Duration) -> Result<(Shell, Shell), RunError> {
        if !is_root() {
            let why = "a server runs in namespaces of its own, and making them needs root";
            return Err(RunError::Other(why.into()));
        }
        let run = |option: &str, command: &str| {
            let command = quoted(&own(command));
            format!("sh -c {command} || ended {option} $?\n")
        };
        let stop = self.stop.as_deref().map(|stop| run("--stop", stop)).unwrap_or_default();
        let writer = self.beside("--client", &self.client, limit, run("--client", &self.client));
        let read = run("--reader", &self.reader) + &stop;
        Ok((writer, self.beside("--reader", &self.reader, limit, read)))
    }

    fn beside(&self, option: &str, said: &str, limit: Duration, then: String) -> Shell {
        let [start, ready] = [&self.start, &self.ready].map(|command| quoted(&own(command)));
        // A complaint comes before the limit does.
        let seconds = (limit.as_secs_f64() * 0.8).max(1.0) as u64;
        let script = format!(
            "export PORT={PORT} START={start} READY={ready} UNTIL=$(($(date +%s) + {seconds}))\
             {SCRIPT}{then}"
        );
        Shell { label: format!("{option} {said:?}"), command: script, network: Network::Own }
    }
}

/// A command that finds the directory where it is in these namespaces.
fn own(command: &str) -> String {
    command.replace(PLACEHOLDER, "/run/disk")
}
