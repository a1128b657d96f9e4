//! The command line.
//!
//! *Owns*: its words and their limits. *May not touch*: anything that is measured.

use std::path::PathBuf;
use std::time::Duration;

use crate::engine::Kind;
use crate::load;

pub const USAGE: &str =
    "usage: bench-peers DIRECTORY [--rounds N] [--seconds S] [--only LOAD[,LOAD..]] [--engines NAME[,NAME..]]
                   [--read-mib N] [--seed N] [--json FILE]";

/// Fewer rounds give ratios whose intervals say nothing; they are good for trying the program.
const ROUNDS: u32 = 7;

pub struct Arguments {
    pub directory: PathBuf,
    pub rounds: u32,
    pub time: Duration,
    pub loads: Vec<&'static load::Load>,
    pub engines: Vec<Kind>,
    pub read_mib: u64,
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
            loads: load::ALL.iter().collect(),
            engines: Kind::ALL.to_vec(),
            read_mib: 1024,
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
                "--seed" => all.seed = number(&word, &value, 0, u64::MAX)?,
                "--seconds" => all.time = seconds(&value)?,
                "--json" => all.json = Some(value.into()),
                "--only" => all.loads = listed(&value, load::ALL, |load| load.name)?,
                "--engines" => {
                    all.engines =
                        listed(&value, &Kind::ALL, |kind| kind.name())?.into_iter().copied().collect();
                }
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
    parsed.map(Duration::from_secs_f64).ok_or_else(|| format!("--seconds {value}: take 0.05 to 600"))
}

fn listed<'a, T>(value: &str, all: &'a [T], name: impl Fn(&T) -> &'static str) -> Result<Vec<&'a T>, String> {
    let find = |word: &str| {
        all.iter().find(|one| name(one) == word).ok_or_else(|| {
            let names: Vec<_> = all.iter().map(&name).collect();
            format!("{word:?}: take some of {}", names.join(", "))
        })
    };
    value.split(',').map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn what_is_asked_for_is_taken() {
        let all = parse("/tmp --rounds 9 --only get,1x4k --engines sqlite --seconds 0.5").expect("a line");
        assert_eq!((all.rounds, all.time), (9, Duration::from_millis(500)));
        assert_eq!(all.loads.iter().map(|load| load.name).collect::<Vec<_>>(), ["get", "1x4k"]);
        assert_eq!(all.engines, [Kind::Sqlite]);
        assert_eq!(parse("/tmp").expect("a directory").loads.len(), load::ALL.len());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in [
            "",
            "/a /b",
            "/a --rounds",
            "/a --rounds 0",
            "/a --only 2x128",
            "/a --engines etcd",
            "/a --what 1",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
