//! What a run means for common engines: their settings, each with its reason, its figure and its
//! source.
//!
//! *Owns*: when there is advice, and its text. *May not touch*: figures; the rules (`rules.rs`).
//!
//! A wrong setting costs more than no advice. So there is no advice if the lab warns about the run;
//! a difference counts only by an interval that is widened for the number of rules that are applied
//! at once (Bonferroni); and *either* is advised only if the whole interval is near 1. Where there
//! is no advice, there is a reason.

mod rules;

use crate::asked::against;
use crate::result::{
    CellResult, DurableFinding, EngineAdvice, LabResult, Measured, Relative, Run, Verdict, Warning,
};
use crate::stats::relative_of_several;

use self::rules::{ETCD, RULES, Rule};

/// The advice of a run, and where there is none.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Settings, with reasons.
    pub advice: Vec<EngineAdvice>,
    /// Settings without advice, each with the reason.
    pub unsaid: Vec<String>,
}

/// etcd's own limit for a disk that is fast enough: the 99th percentile of a WAL sync.
const ETCD_P99_NS: u64 = 10_000_000;
/// A percentile has no interval here: within this factor of the limit there is no advice.
const ETCD_MARGIN: u64 = 2;
/// With fewer commits a 99th percentile is a single value.
const COMMITS_MIN: u64 = 100;
/// The advice of each run of a result.
pub fn advise_all(result: &LabResult) -> Vec<(&Run, Answer)> {
    result.runs.iter().map(|run| (run, advise(run, &result.warnings))).collect()
}

/// The advice of a run, in a result with these warnings.
pub fn advise(run: &Run, warnings: &[Warning]) -> Answer {
    let warned = against(run, warnings);
    let asked: Vec<&Rule> = RULES.iter().filter(|rule| rule.is_measured(run)).collect();
    let mut answer = Answer::default();
    if asked.is_empty() && measured(run, ETCD_CELL).is_none() {
        answer.unsaid.push("nothing was measured here that decides an engine's settings".into());
    } else if !warned.is_empty() {
        let because = warned.iter().map(|warning| format!("{}: {}", warning.name, warning.text));
        answer.unsaid.extend(
            because.map(|why| format!("no setting, because the lab warns about this run ({why})")),
        );
    } else {
        for rule in &asked {
            match rule.advice(run, asked.len()) {
                Ok(advice) => answer.advice.push(advice),
                Err(why) => answer.unsaid.push(format!("{}: {why}", rule.engine)),
            }
        }
        match etcd(run) {
            Some(Ok(advice)) => answer.advice.push(advice),
            Some(Err(why)) => answer.unsaid.push(why),
            None => {}
        }
    }
    answer
}

impl Rule {
    fn is_measured(&self, run: &Run) -> bool {
        measured(run, self.base).is_some() && measured(run, self.other).is_some()
    }

    /// The setting, or why there is none. `asked`: how many rules are applied to the run.
    fn advice(&self, run: &Run, asked: usize) -> Result<EngineAdvice, String> {
        let Self { base, other, .. } = self;
        let rounds = |name| {
            measured(run, name).map(|measured| measured.rounds.as_slice()).unwrap_or_default()
        };
        let cannot = |why: &str| format!("`{other}` beside `{base}`: {why}");
        let found = relative_of_several(rounds(base), rounds(other), run.seed, asked);
        let found = found.ok_or_else(|| cannot("no rounds of the two can be paired"))?;
        let setting = match found.verdict {
            Verdict::Faster => self.faster,
            Verdict::Slower => self.slower,
            Verdict::Tie => self.same,
            Verdict::CannotTell => return Err(cannot(&figure(&found, asked))),
            Verdict::Unknown => return Err(cannot(&found.interval_words())),
        };
        Ok(EngineAdvice {
            engine: self.engine.into(),
            setting: setting.into(),
            reason: format!("{}: {}", self.why, figure(&found, asked)),
            source: self.source.into(),
        })
    }
}

/// Whether one setting contradicts the other.
pub fn are_opposite(one: &str, other: &str) -> bool {
    let rules = RULES.iter().map(|rule| [rule.faster, rule.slower]);
    let mut pairs = rules.chain([ETCD_SETTINGS]).filter(|[faster, slower]| faster != slower);
    pairs.any(|pair| pair == [one, other] || pair == [other, one])
}

const ETCD_SETTINGS: [&str; 2] = [
    "its WAL can stay here",
    "move its WAL to another disk (--wal-dir): this one is too slow for it",
];
const ETCD_CELL: &str = "fallocate fdatasync";

/// etcd reserves its WAL with fallocate and syncs it by fdatasync. There is no setting for that,
/// but etcd has a limit of its own.
fn etcd(run: &Run) -> Option<Result<EngineAdvice, String>> {
    let commit = &measured(run, ETCD_CELL)?.commit;
    if commit.count < COMMITS_MIN {
        return None;
    }
    let p99_ms = commit.p99_ns as f64 / 1e6;
    let [here, elsewhere] = ETCD_SETTINGS;
    let setting = if commit.p99_ns < ETCD_P99_NS / ETCD_MARGIN {
        here
    } else if commit.p99_ns > ETCD_P99_NS * ETCD_MARGIN {
        elsewhere
    } else {
        return Some(Err(format!(
            "etcd: the 99th percentile of a sync is {p99_ms:.2} ms here, near its limit of 10 ms"
        )));
    };
    let reason = format!(
        "it reserves its WAL with fallocate and needs a 99th percentile of a sync below 10 ms; here it is {p99_ms:.2} ms"
    );
    Some(Ok(EngineAdvice {
        engine: "etcd".into(),
        setting: setting.into(),
        reason,
        source: ETCD.into(),
    }))
}

/// A cell whose durability was not seen to fail.
fn measured<'a>(run: &'a Run, name: &str) -> Option<&'a Measured> {
    let named = |cell: &&CellResult| cell.name == name;
    let measured = run.cells.iter().find(named)?.outcome.measured()?;
    (!matches!(measured.durable, DurableFinding::NotCovered { .. })).then_some(measured)
}

/// `2.1 times as fast here (2.0 to 2.3, at 95% for all 8 questions together)`.
fn figure(relative: &Relative, asked: usize) -> String {
    let speedup = relative.speedup;
    let interval = match (relative.interval(), asked) {
        (Some((low, high)), 2..) => {
            format!("{low:.2} to {high:.2}, at 95% for all {asked} questions together")
        }
        _ => relative.interval_words(),
    };
    match relative.verdict {
        Verdict::Faster => format!("{speedup:.2} times as fast here ({interval})"),
        Verdict::Slower => format!("slower here: {speedup:.2} of the speed ({interval})"),
        Verdict::Tie => format!("within 10% here ({speedup:.2}: {interval})"),
        Verdict::CannotTell | Verdict::Unknown => {
            format!("cannot tell here ({speedup:.2}: {interval})")
        }
    }
}

#[cfg(test)]
mod tests;
