//! The result of a run of a power-loss lab, for machines and for people: which log on which file
//! system, how many states of how many, from which seeds, and what was found.
//!
//! *Owns*: the result and its text. *May not touch*: how states are made or judged.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

/// Names up to this length stand several on a line.
const SHORT_NAME: usize = 24;
/// The longest line of text, if no name is longer.
const LINE: usize = 96;

/// The result of one run. `inkstone powerloss ... --json FILE` writes a list of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Which lab: `sim`, `run`, `kill`, `faults`, `any`, `check`.
    pub lab: String,
    pub inkstone: String,
    pub kernel: String,
    pub command: String,
    /// What was tested: strategy, segment size and the like, in words.
    pub subject: String,
    /// The file system, or `simulated disks`.
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
    /// Of `any` and `check`: why a state is broken, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cause: Vec<String>,
    pub not_run: Vec<String>,
    /// Of `check`: what was kept of the worst state, and the command that shows it again.
    #[serde(default)]
    pub kept: Vec<Violation>,
    /// Of `check`: what was found of each name that the command has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NameFound>,
}

/// What was found of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NameFound {
    pub name: String,
    /// Before the command.
    pub was_there: bool,
    /// In how many states.
    pub found: Counts,
    /// Of the worst, in words.
    pub words: String,
}

impl NameFound {
    /// Whether it was anything but new in any state.
    pub fn is_lost(&self) -> bool {
        self.is_but(&["new"])
    }

    /// Whether it was anything but these in any state.
    pub(crate) fn is_but(&self, fine: &[&str]) -> bool {
        self.found.0.iter().any(|(what, count)| !fine.contains(&what.as_str()) && *count > 0)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// For example `torn-512`.
    pub name: String,
    /// States that were opened, read and compared.
    pub states: u64,
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

impl RunResult {
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
            cause: Vec::new(),
            not_run: Vec::new(),
            kept: Vec::new(),
            names: Vec::new(),
        }
    }

    pub fn count(&mut self, name: &str, states: u64) {
        match self.classes.iter_mut().find(|class| class.name == name) {
            Some(class) => class.states += states,
            None => {
                self.classes.push(Class { name: name.into(), states });
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

impl Display for RunResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&in_words(std::slice::from_ref(self)))
    }
}

/// The results of one command as people read them: what was tested, the states of each class on
/// each file system, what did not run, and the verdict on all of it.
pub fn in_words(results: &[RunResult]) -> String {
    let Some(first) = results.first() else { return "nothing was checked".into() };
    // One place stands in the heading; of several each line has its own.
    let is_one = results.len() == 1;
    let on = if is_one { format!(" on {}", first.file_system) } else { String::new() };
    let mut lines = vec![format!("{}{on}: {}", first.lab, first.subject)];
    let name = |result: &RunResult| result.file_system.len() + 2;
    let place = if is_one { 0 } else { results.iter().map(name).max().unwrap_or(0) };
    let classes = || results.iter().flat_map(|result| &result.classes);
    let width = |length: fn(&Class) -> usize| classes().map(length).max().unwrap_or(0);
    let names = width(|class| class.name.len());
    let digits = width(|class| class.states.to_string().len());
    for result in results {
        let name = if is_one { "" } else { &result.file_system };
        let head = |text: &str| format!("  {name:<place$}{text}");
        let of_class = |class: &Class| {
            let Class { name, states, .. } = class;
            if names > SHORT_NAME {
                format!("{states:>digits$}  {name}")
            } else {
                format!("{name:<names$} {states:>digits$}")
            }
        };
        let shown: Vec<String> = result.classes.iter().map(of_class).collect();
        let each = names + digits + 4;
        let on_a_line =
            if names > SHORT_NAME { 1 } else { LINE.saturating_sub(place + 2) / each }.max(1);
        lines.extend(shown.chunks(on_a_line).map(|some| head(&some.join("   "))));
        if result.counts != Counts::default() {
            lines.push(head(&result.counts.to_string()));
        }
    }
    not_run(results, &mut lines);
    for Violation { what, command } in results.iter().flat_map(|result| &result.violations) {
        lines.push(format!("  BROKEN: {what}\n    again: {command}"));
    }
    let causes = results.iter().flat_map(|result| &result.cause);
    lines.extend(causes.map(|sentence| format!("    cause: {sentence}")));
    lines.push(verdict(results));
    lines.join("\n")
}

/// What did not run: each text once, with the file systems that it is about, if there are several.
fn not_run(results: &[RunResult], lines: &mut Vec<String>) {
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    let all = results.iter().flat_map(|one| one.not_run.iter().map(move |text| (one, text)));
    for (result, text) in all {
        let place = format!("{}: ", result.file_system);
        let text = text.strip_prefix(&place).unwrap_or(text);
        match said.iter_mut().find(|(known, _)| *known == text) {
            Some((_, places)) => places.push(&result.file_system),
            None => said.push((text, vec![&result.file_system])),
        }
    }
    lines.extend(said.iter().map(|(text, places)| {
        let places = if results.len() > 1 { places.join(", ") + ": " } else { String::new() };
        format!("  NOT RUN: {places}{text}")
    }));
}

fn verdict(results: &[RunResult]) -> String {
    let states: u64 = results.iter().map(RunResult::states).sum();
    let verdict = match (results.iter().all(RunResult::is_clean), states) {
        (true, 0) => "nothing was checked".to_owned(),
        (true, _) => format!("every promise held in {states} states"),
        (false, _) => format!("a promise was broken, states checked: {states}"),
    };
    let first = results.first();
    let (inkstone, kernel) = first.map_or(("", ""), |first| (&*first.inkstone, &*first.kernel));
    let from = first.map_or(0, |first| first.seed);
    let to = results.iter().map(|result| result.seed.saturating_add(result.seeds)).max();
    // As the options take them: `--seed 1 --seeds 20`.
    let seeds = match to.map_or(0, |to| to - from) {
        0 | 1 => format!("seed {from}"),
        seeds => format!("{seeds} seeds from {from} on"),
    };
    let seconds: f64 = results.iter().map(|result| result.seconds).sum();
    format!("{verdict}, {seeds}, {seconds:.1} s, inkstone {inkstone}, Linux {kernel}")
}

/// The kernel, as `uname -r` prints it.
pub fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or_else(|_| "of an unknown release".into(), |release| release.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(file_system: &str, states: u64) -> RunResult {
        let mut result =
            RunResult::begin("run", file_system.into(), "histories".into(), "again".into());
        result.count("cut", states);
        result.count("cut again", 10 * states);
        result
    }

    #[test]
    fn each_file_system_has_a_line_and_all_have_one_verdict() {
        let mut results = [on("ext4", 7), on("xfs", 60)];
        results.iter_mut().for_each(|result| result.not_run.push("it is small".into()));
        results[1].not_run.push("one of two".into());
        let text = in_words(&results);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "run: histories",
                "  ext4  cut         7   cut again  70",
                "  xfs   cut        60   cut again 600",
            ]
        );
        assert_eq!(
            lines[3..5],
            ["  NOT RUN: ext4, xfs: it is small", "  NOT RUN: xfs: one of two"]
        );
        assert!(lines[5].starts_with("every promise held in 737 states, seed 0, "), "{text}");
        results[1].seeds = 20;
        assert!(in_words(&results).contains(" states, 20 seeds from 0 on, "), "as `--seeds 20`");
        results[0].violations.push(Violation { what: "lost".into(), command: "again".into() });
        assert!(
            in_words(&results).contains("BROKEN: lost\n    again: again\na promise was broken")
        );
    }
}
