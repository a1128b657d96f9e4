//! The command line.
//!
//! *Owns*: its words and their limits. *May not touch*: anything that is measured.

use std::path::PathBuf;
use std::time::Duration;

use crate::engine::Kind;
use crate::load::{self, plan::Load};

pub const USAGE: &str =
    "usage: bench-peers DIRECTORY [--rounds N] [--seconds S] [--only LOAD[,LOAD..]]
                   [--engines NAME[,NAME..]] [--read-mib N] [--divide N] [--seed N]
                   [--json FILE]";

/// Fewer rounds give ratios whose intervals say nothing; they are good for trying the program.
const ROUNDS: u32 = 7;

pub struct Arguments {
    pub directory: PathBuf,
    pub rounds: u32,
    pub time: Duration,
    pub loads: Vec<&'static Load>,
    pub engines: Vec<Kind>,
    pub read_mib: u64,
    pub divide: u64,
    pub seed: u64,
    pub json: Option<PathBuf>,
}

impl Arguments {
    /// # Errors
    /// What cannot be understood, and what could.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut all = Self {
            directory: PathBuf::new(),
            rounds: ROUNDS,
            time: Duration::from_secs(2),
            loads: load::ALL.iter().filter(|load| load.is_default()).collect(),
            engines: Kind::ALL.to_vec(),
            read_mib: 1024,
            divide: 1,
            seed: 1,
            json: None,
        };
        while let Some(word) = words.next() {
            if !word.starts_with("--") {
                if !all.directory.as_os_str().is_empty() {
                    return Err(format!("{word:?}: one directory is enough"));
                }
                all.directory = word.into();
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--rounds" => all.rounds = number(&word, &value, 1, 1000)? as u32,
                "--read-mib" => all.read_mib = number(&word, &value, 1, 1 << 20)?,
                "--divide" => all.divide = number(&word, &value, 1, 100)?,
                "--seed" => all.seed = number(&word, &value, 0, u64::MAX)?,
                "--seconds" => all.time = seconds(&value)?,
                "--json" => all.json = Some(value.into()),
                "--only" => all.loads = loads(&value)?,
                "--engines" => all.engines = engines(&value)?,
                _ => return Err(format!("{word}: no such option")),
            }
        }
        if all.directory.as_os_str().is_empty() {
            return Err("which directory? It decides which disk is measured".into());
        }
        Ok(all)
    }
}

fn number(word: &str, value: &str, least: u64, most: u64) -> Result<u64, String> {
    let parsed = value.parse().ok().filter(|number| (least..=most).contains(number));
    parsed.ok_or_else(|| format!("{word} {value}: take a number from {least} to {most}"))
}

fn seconds(value: &str) -> Result<Duration, String> {
    let parsed = value.parse().ok().filter(|seconds| (0.05..=600.0).contains(seconds));
    parsed
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("--seconds {value}: take 0.05 to 600"))
}

fn engines(value: &str) -> Result<Vec<Kind>, String> {
    let of = |word: &str| Kind::ALL.into_iter().find(|kind| kind.name() == word);
    let names = || Kind::ALL.map(Kind::name).join(", ");
    let known = |word| of(word).ok_or_else(|| format!("{word:?}: take some of {}", names()));
    value.split(',').map(known).collect()
}

/// `busy` is `busy-1`, `busy-8` and `busy-64`.
fn loads(value: &str) -> Result<Vec<&'static Load>, String> {
    let mut all = Vec::new();
    for word in value.split(',') {
        let group = format!("{word}-");
        let before = all.len();
        all.extend(
            load::ALL.iter().filter(|load| load.name == word || load.name.starts_with(&group)),
        );
        if all.len() == before {
            let names: Vec<_> = load::ALL.iter().map(|load| load.name).collect();
            return Err(format!(
                "{word:?}: take some of {}, or what several begin with",
                names.join(", ")
            ));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn what_is_asked_for_is_taken() {
        let all = parse("/tmp --rounds 9 --only read-warm,1x4k --engines okaywal --seconds 0.5")
            .expect("a line");
        assert_eq!((all.rounds, all.time), (9, Duration::from_millis(500)));
        assert_eq!(
            all.loads.iter().map(|load| load.name).collect::<Vec<_>>(),
            ["read-warm", "1x4k"]
        );
        assert_eq!(all.engines, [Kind::Okaywal]);
        let all = parse("/tmp --only read,busy-8").expect("a line");
        assert_eq!(
            all.loads.iter().map(|load| load.name).collect::<Vec<_>>(),
            ["read-warm", "read-cold", "busy-8"]
        );
        let default = parse("/tmp").expect("a directory").loads.len();
        let streams = parse("/tmp --only streams").expect("a line").loads.len();
        assert_eq!(default + streams, load::ALL.len());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in [
            "",
            "/a /b",
            "/a --rounds",
            "/a --rounds 0",
            "/a --only 2x128",
            "/a --only rea",
            "/a --engines etcd",
            "/a --what 1",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
