//! The judge of a history: the Go program in `checker/`, over porcupine.
//!
//! *Owns*: building it, running it, its answer. *May not touch*: what linearizable means.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How long the checker may think about one history, in its own words.
const LIMIT: &str = "120s";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Sound,
    Broken,
    /// Nobody knows: the time was too short, or there was nothing to judge.
    Undecided(String),
}

#[derive(Debug, Clone)]
pub struct Judge {
    program: PathBuf,
}

fn go() -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/go/bin";
    path.split(':').map(|directory| Path::new(directory).join("go")).find(|go| go.is_file())
}

pub fn missing() -> Option<String> {
    go().is_none().then(|| "Go is not installed: the checker of histories is a Go program".into())
}

impl Judge {
    /// Builds the checker into `directory`.
    pub fn build(directory: &Path) -> Result<Self, String> {
        let program = directory.join("checker");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("checker");
        let mut build = Command::new(go().ok_or("there is no go")?);
        build.args(["build", "-o"]).arg(&program).arg(".").current_dir(&source);
        build.stdin(Stdio::null());
        let output = build.output().map_err(|error| format!("go: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
            return Err(format!("go build in {}: {said}", source.display()));
        }
        Ok(Self { program })
    }

    /// Judges a history; a broken one is drawn at `picture`.
    pub fn judge(&self, history: &Path, picture: &Path) -> Result<Verdict, String> {
        let mut checker = Command::new(&self.program);
        checker.args(["-time", LIMIT, "-picture"]).arg(picture).arg(history).stdin(Stdio::null());
        // One thread: the cluster is being tortured on the other processors.
        checker.env("GOMAXPROCS", "1");
        let output =
            checker.output().map_err(|error| format!("{}: {error}", self.program.display()))?;
        let said = || {
            let both = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
            both.join(" ").trim().to_string()
        };
        match output.status.code() {
            Some(0) => Ok(Verdict::Sound),
            Some(1) => Ok(Verdict::Broken),
            Some(3) => Ok(Verdict::Undecided(said())),
            _ => Err(format!("the checker failed on {}: {}", history.display(), said())),
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::history::{Asked, History};
    use replicated_log::client::Outcome;
    use replicated_log::types::Request;

    #[test]
    #[ignore = "needs Go"]
    fn histories_of_ours_are_judged() {
        if let Some(why) = missing() {
            return inkstone_host::not_run("histories_of_ours_are_judged", why);
        }
        let directory = std::env::temp_dir().join(format!("inkstone-judge-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let judge = Judge::build(&directory).expect("it builds");
        for (found, expected) in [(vec!["x"], Verdict::Sound), (vec!["x", "x"], Verdict::Broken)] {
            let path = directory.join("history");
            let history = History::create(&path).expect("a file");
            let append = Request::Append { key: "k".into(), value: "x".into() };
            let append = history.invoke(0, &Asked::Change(append));
            history.complete(0, append, &Outcome::Done(None));
            let get = history.invoke(1, &Asked::Get("k".into()));
            let found = found.into_iter().map(Into::into).collect();
            history.complete(1, get, &Outcome::Done(Some(found)));
            history.finish().expect("written");
            let picture = directory.join("picture.html");
            assert_eq!(judge.judge(&path, &picture), Ok(expected.clone()));
            assert_eq!(picture.exists(), expected == Verdict::Broken);
        }
        std::fs::write(directory.join("history"), "no json").expect("written");
        assert!(judge.judge(&directory.join("history"), &directory.join("p")).is_err());
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
