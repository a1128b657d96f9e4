//! The result of a run of a power-loss lab, for machines and for people: which log on which file
//! system, how many states of how many, from which seeds, and what was found.
//!
//! *Owns*: the certificate and its text. *May not touch*: how states are made or judged.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

/// The result of one run. `inkstone powerloss ... --certificate FILE` writes a list of them as
/// JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Which lab: `sim`, `run`, `kill`, `strategies`, `faults`, `any`.
    pub lab: String,
    pub inkstone: String,
    pub kernel: String,
    pub command: String,
    /// What was tested: strategy, segment size and the like, in words.
    pub subject: String,
    /// The file system, or `simulated`.
    pub file_system: String,
    pub seed: u64,
    /// How many seeds from there.
    pub seeds: u64,
    pub classes: Vec<Class>,
    /// What was counted besides.
    #[serde(default)]
    pub counts: Counts,
    pub seconds: f64,
    /// What was found; empty when every promise held.
    pub violations: Vec<Violation>,
    pub not_run: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// For example `any subset of unflushed sectors`.
    pub name: String,
    /// States that were opened, read and compared.
    pub states: u64,
    /// The binary logarithm of the number of states that are possible at the checked cuts; `None`
    /// where it is unknown.
    pub possible_log2: Option<f64>,
    /// States that are equal to an opened one, and were not opened themselves.
    pub covered: u64,
    /// Core seconds spent, where they were measured.
    #[serde(default)]
    pub core_seconds: Option<f64>,
}

impl Class {
    /// States that were opened or covered, per second of one core.
    pub fn per_second(&self) -> Option<f64> {
        let seconds = self.core_seconds.filter(|seconds| *seconds > 0.0)?;
        Some((self.states + self.covered) as f64 / seconds)
    }
}

/// Counts by what they count, in the order in which that came first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts(Vec<(String, u64)>);

impl Counts {
    pub fn add(&mut self, what: &str, more: u64) {
        match self.0.iter_mut().find(|(known, _)| known == what) {
            Some((_, count)) => *count += more,
            None if more > 0 => self.0.push((what.to_owned(), more)),
            None => {}
        }
    }

    pub fn of(&self, what: &str) -> u64 {
        self.0.iter().find(|(known, _)| known == what).map_or(0, |(_, count)| *count)
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.0.iter().map(|(what, count)| format!("{count} {what}")).collect();
        f.write_str(&words.join(", "))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    pub what: String,
    pub command: String,
}

impl Certificate {
    pub fn begin(lab: &str, file_system: String, subject: String, command: String) -> Self {
        Self {
            lab: lab.into(),
            inkstone: env!("CARGO_PKG_VERSION").into(),
            kernel: kernel(),
            command,
            subject,
            file_system,
            seed: 0,
            seeds: 1,
            classes: Vec::new(),
            counts: Counts::default(),
            seconds: 0.0,
            violations: Vec::new(),
            not_run: Vec::new(),
        }
    }

    pub fn count(&mut self, name: &str, states: u64) {
        match self.classes.iter_mut().find(|class| class.name == name) {
            Some(class) => class.states += states,
            None => {
                self.classes.push(Class { name: name.into(), states, ..Class::default() });
            }
        }
    }

    pub fn states(&self) -> u64 {
        self.classes.iter().map(|class| class.states).sum()
    }

    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

impl Display for Certificate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {}: {}", self.lab, self.file_system, self.subject)?;
        for class in &self.classes {
            write!(f, "  {:>12} states  {}", class.states, class.name)?;
            if class.covered > 0 {
                write!(f, ", which stand for {} more", class.covered)?;
            }
            match class.possible_log2 {
                Some(log2) if log2 < 40.0 => write!(f, ", of {:.0}", log2.exp2())?,
                Some(log2) => write!(f, ", of 2^{log2:.0}")?,
                None => {}
            }
            match class.per_second() {
                Some(rate) => writeln!(f, "; {rate:.0} a second per core")?,
                None => writeln!(f)?,
            }
        }
        if self.counts != Counts::default() {
            writeln!(f, "  {}", self.counts)?;
        }
        for what in &self.not_run {
            writeln!(f, "  NOT RUN: {what}")?;
        }
        for violation in &self.violations {
            writeln!(f, "  BROKEN: {}\n    again: {}", violation.what, violation.command)?;
        }
        let verdict = match (self.is_clean(), self.states()) {
            (true, 0) => "nothing was checked",
            (true, _) => "every promise held",
            (false, _) => "promises were broken",
        };
        write!(
            f,
            "{verdict} in {} states, seeds {}..{}, {:.1} s, inkstone {}, Linux {}",
            self.states(),
            self.seed,
            self.seed.saturating_add(self.seeds),
            self.seconds,
            self.inkstone,
            self.kernel
        )
    }
}

/// The kernel, as `uname -r` prints it.
pub fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or_else(|_| "of an unknown release".into(), |release| release.trim().to_owned())
}
