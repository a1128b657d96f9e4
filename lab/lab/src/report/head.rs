//! The text of the page before any chart: the answer, what is missing, the warnings.
//!
//! *Owns*: that text. *May not touch*: findings; they come from the lab. Every field may be
//! missing.

use inkstone_io::NamedChoice;
use serde_json::Value;

use crate::experiment::{Size, list::giving};
use crate::presets::Preset;
use crate::result::FEW_ROUNDS;

/// The head of a page.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) title: String,
    pub(super) when: String,
    pub(super) answer: Vec<Sentence>,
    /// `Why` and `Do this`, if the answer is one run's.
    pub(super) steps: Vec<(&'static str, Sentence)>,
    pub(super) tiles: Vec<Tile>,
    pub(super) measured: String,
    pub(super) command: Option<String>,
    pub(super) missing: Vec<Call>,
    pub(super) warnings: Vec<Call>,
    pub(super) engines: Vec<Advice>,
    pub(super) measured_by: String,
    pub(super) schema_version: String,
    pub(super) detail: &'static str,
}

/// A sentence with names in `backticks`.
#[derive(Debug)]
pub(super) struct Sentence(String);

/// A piece of a sentence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) text: &'a str,
    pub(super) code: bool,
}

impl Call {
    /// The name as words: `device busy`.
    pub(super) fn words(&self) -> String {
        self.name.replace('-', " ")
    }
}

impl Sentence {
    pub(super) fn parts(&self) -> Vec<Part<'_>> {
        self.0
            .split('`')
            .enumerate()
            .map(|(index, text)| Part { text, code: index % 2 == 1 })
            .collect()
    }
}

/// One large figure.
#[derive(Debug)]
pub(super) struct Tile {
    pub(super) figure: String,
    pub(super) what: String,
}

/// A note that a reader should see before the rest.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) details: Vec<String>,
    pub(super) cure: String,
}

/// The advice for one engine.
#[derive(Debug)]
pub(super) struct Advice {
    pub(super) engine: String,
    pub(super) setting: String,
    pub(super) reason: String,
}

/// The most lines under one heading; the rest is only counted.
const DETAILS_MAX: usize = 8;

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn plural(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

/// The outcome's name, if it has one.
fn kind(cell: &Value) -> &str {
    cell.pointer("/outcome/kind").and_then(Value::as_str).unwrap_or_default()
}

fn place_name(part: &Value) -> String {
    let place = part.get("place").unwrap_or(&Value::Null);
    [text(place, "name"), text(place, "directory")]
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "a place without a name".into())
}

impl Words {
    pub(super) fn of(result: &Value, detail: &'static str) -> Self {
        let runs = list(result, "runs");
        let version = result.get("inkstone_version").and_then(Value::as_str);
        Self {
            title: title(result),
            when: when(result),
            answer: answer(result),
            steps: steps(result),
            tiles: tiles(runs),
            measured: measured(result),
            command: Some(text(result, "command")).filter(|command| !command.is_empty()),
            missing: missing(result),
            warnings: warnings(result),
            engines: engines(result),
            measured_by: version.unwrap_or("an unknown version").into(),
            schema_version: result.get("schema_version").map(Value::to_string).unwrap_or_default(),
            detail,
        }
    }
}

/// What the result contains, and from where.
fn title(result: &Value) -> String {
    if !list(result, "disks").is_empty() {
        return "Which disk is best for the log".into();
    }
    let what =
        if list(result, "claims").is_empty() { holds(result) } else { "Claims, checked".into() };
    let names = ["runs", "experiments", "fallocate"]
        .iter()
        .flat_map(|part| list(result, part))
        .chain(result.get("aa"));
    let mut places: Vec<String> =
        names.filter(|part| part.is_object()).map(place_name).filter(|name| name != ".").collect();
    places.dedup();
    match places.as_slice() {
        [] => format!("{what} on this disk"),
        [one] => format!("{what} on {one}"),
        many => format!("{what} in {}", plural(many.len(), "place")),
    }
}

/// For runs: durable writes; for experiments alone: their subjects.
fn holds(result: &Value) -> String {
    let is_there = |name: &str| !list(result, name).is_empty();
    if is_there("runs") {
        return "Durable writes".into();
    }
    let mut subjects: Vec<&str> = Vec::new();
    for experiment in list(result, "experiments") {
        let subject = subject(&text(experiment, "name"));
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    match subjects.as_slice() {
        [] if is_there("fallocate") => "fallocate, mode by mode,".into(),
        [] if result.get("aa").is_some_and(Value::is_object) => "Identical ways of writing".into(),
        [] => "Durable writes".into(),
        [one] => (*one).to_owned(),
        many => plural(many.len(), "experiment"),
    }
}

/// The subject of an experiment's result, by its name.
fn subject(result: &str) -> &'static str {
    if result == "score" {
        return "The log's own choice of a way to write";
    }
    let command = giving(result, Size::Usual).and_then(|experiment| experiment.command());
    command.map_or("An experiment", |command| command.subject)
}

/// The date and time in UTC.
fn when(result: &Value) -> String {
    let Some(unix_s) =
        result.get("started_unix_s").and_then(Value::as_i64).filter(|unix_s| *unix_s > 0)
    else {
        return "measured at an unknown time".into();
    };
    let (days, of_day) = (unix_s / 86_400, unix_s % 86_400);
    // The civil date of a day number, as Howard Hinnant's "chrono-compatible low-level date
    // algorithms" have it.
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", of_day / 3_600, of_day % 3_600 / 60)
}

/// The first thing to read. For one place: its finding. For several: in how many there is anything
/// to gain, and where most.
fn answer(result: &Value) -> Vec<Sentence> {
    let runs = list(result, "runs");
    if !list(result, "disks").is_empty() {
        return vec![Sentence(text(result, "sentence"))];
    }
    if let Some(sentence) = of_claims(list(result, "claims")) {
        return vec![Sentence(sentence)];
    }
    let parts = runs.iter().chain(list(result, "experiments"));
    let found: Vec<(&Value, &Value)> = parts
        .filter_map(|part| Some((part, part.get("finding")?)))
        .filter(|(_, finding)| !text(finding, "sentence").is_empty())
        .collect();
    if let Some(run) = heading(runs) {
        return vec![Sentence(text(run.get("finding").unwrap_or(&Value::Null), "sentence"))];
    }
    if runs.len() > 1
        && let Some(sentence) = across(runs)
    {
        return vec![Sentence(sentence)];
    }
    if !found.is_empty() {
        return found.iter().map(|(_, finding)| Sentence(text(finding, "sentence"))).collect();
    }
    if let Some(aa) = result.get("aa").filter(|aa| aa.is_object()) {
        let number = |name: &str| aa.get(name).and_then(Value::as_u64).unwrap_or(0);
        return vec![Sentence(format!(
            "Of {} pairs of identical ways, {} were called different; chance explains about one in twenty.",
            number("pairs"),
            number("different")
        ))];
    }
    let any = runs.iter().flat_map(|run| list(run, "cells")).any(|cell| kind(cell) == "measured");
    let atlas = list(result, "fallocate").iter().any(|atlas| !list(atlas, "cells").is_empty());
    let sentence = match (any, atlas) {
        (true, _) => "This run has no conclusion: too little of it could be compared.",
        (false, true) => "What each mode of fallocate does to a file here, call by call.",
        (false, false)
            if list(result, "experiments").iter().any(|one| !list(one, "rows").is_empty()) =>
        {
            "This run has no conclusion in words; the charts show what was measured."
        }
        (false, false) => "Nothing was measured.",
    };
    vec![Sentence(sentence.into())]
}

/// The run whose finding heads the page: the only one, or of `lab all` the one that has the
/// important durable ways side by side.
fn heading(runs: &[Value]) -> Option<&Value> {
    let has_finding =
        |run: &&Value| run.get("finding").is_some_and(|found| !text(found, "sentence").is_empty());
    match runs {
        [one] => Some(one).filter(has_finding),
        many => {
            many.iter().filter(|run| text(run, "name") == Preset::Quick.name()).find(has_finding)
        }
    }
}

/// Why, and what to do.
fn steps(result: &Value) -> Vec<(&'static str, Sentence)> {
    let is_other = |part: &str| !list(result, part).is_empty();
    let Some(run) =
        heading(list(result, "runs")).filter(|_| !is_other("disks") && !is_other("claims"))
    else {
        return Vec::new();
    };
    let finding = run.get("finding").unwrap_or(&Value::Null);
    let step = |(lead, name)| {
        Some((lead, Sentence(Some(text(finding, name)).filter(|said| !said.is_empty())?)))
    };
    [("Why", "why"), ("Do this", "advice")].into_iter().filter_map(step).collect()
}

/// How many claims hold here. `None` if there are none.
fn of_claims(claims: &[Value]) -> Option<String> {
    let of =
        |verdict: &str| claims.iter().filter(|claim| text(claim, "verdict") == verdict).count();
    let not_run = match of("not-run") {
        0 => String::new(),
        many => format!("; {many} could not be run"),
    };
    (!claims.is_empty()).then(|| {
        format!(
            "Of {}, {} are confirmed on this disk, {} are refuted, and of {} the lab cannot tell{not_run}.",
            plural(claims.len(), "claim"),
            of("confirmed"),
            of("refuted"),
            of("cannot-tell")
        )
    })
}

/// The best of several places. `None` if none of them could be compared.
fn across(runs: &[Value]) -> Option<String> {
    let verdict = |run: &&Value, wanted: &str| {
        run.pointer("/finding/speedup/verdict")
            .and_then(Value::as_str)
            .is_some_and(|verdict| verdict == wanted)
    };
    let speedup = |run: &Value| run.pointer("/finding/speedup/speedup").and_then(Value::as_f64);
    let compared = runs.iter().filter(|run| speedup(run).is_some()).count();
    let faster: Vec<&Value> = runs.iter().filter(|run| verdict(run, "faster")).collect();
    if compared == 0 {
        return None;
    }
    let rest = match runs.len() - compared {
        0 => String::new(),
        left => format!(" {} could not be compared.", plural(left, "place")),
    };
    let of = |run: &Value, name: &str| {
        run.get("finding").map(|finding| text(finding, name)).unwrap_or_default()
    };
    let best = faster
        .iter()
        .filter_map(|run| Some((speedup(run)?, *run)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let Some((most, run)) = best else {
        return Some(format!(
            "In none of {} was a durable way measurably faster than the naive one.{rest}",
            plural(compared, "place")
        ));
    };
    Some(format!(
        "In {} of {} the best durable way is measurably faster than the naive one. It gains most on {}: there `{}` is \
         {most:.1} times as fast as `{}`.{rest}",
        faster.len(),
        plural(compared, "place"),
        place_name(run),
        of(run, "best"),
        of(run, "naive")
    ))
}

fn per_commit_ns(cell: &Value) -> Option<f64> {
    let rounds = list(cell.get("outcome")?, "rounds");
    let each: Vec<f64> = rounds
        .iter()
        .filter_map(|round| {
            let commits = round.get("commits")?.as_u64()?.max(1);
            Some(round.get("total_ns")?.as_f64()? / commits as f64)
        })
        .collect();
    crate::stats::median(&each)
}

/// For a single place: the cost of a commit in the best way and in the naive one.
fn tiles(runs: &[Value]) -> Vec<Tile> {
    let Some(run) = heading(runs) else { return Vec::new() };
    let Some(finding) = run.get("finding").filter(|found| !text(found, "best").is_empty()) else {
        return Vec::new();
    };
    let cell = |name: &str| list(run, "cells").iter().find(|cell| text(cell, "name") == name);
    let tile = |name: String| {
        let ns = per_commit_ns(cell(&name)?)?;
        Some(Tile {
            figure: crate::table::time(ns).replace(" us", " µs"),
            what: format!("a commit by {name}"),
        })
    };
    let speedup = finding.get("speedup").and_then(|relative| {
        let number = |name: &str| relative.get(name).and_then(Value::as_f64);
        let speedup = number("speedup")?;
        let interval = match (number("low"), number("high")) {
            (Some(low), Some(high)) => format!("95%: {low:.2} to {high:.2}"),
            _ => FEW_ROUNDS.to_owned(),
        };
        Some(Tile {
            figure: format!("{speedup:.2}×"),
            what: format!("as fast as {} ({interval})", text(finding, "naive")),
        })
    });
    [tile(text(finding, "best")), tile(text(finding, "naive")), speedup]
        .into_iter()
        .flatten()
        .collect()
}

fn measured(result: &Value) -> String {
    let cells = || list(result, "runs").iter().flat_map(|run| list(run, "cells"));
    let rows = || list(result, "experiments").iter().flat_map(|one| list(one, "rows"));
    let mut said = Vec::new();
    if cells().next().is_some() {
        let done = cells().filter(|cell| kind(cell) == "measured").count();
        said.push(format!("{done} of {} measured", plural(cells().count(), "way")));
    }
    if rows().next().is_some() {
        let done = rows().filter(|row| !list(row, "samples").is_empty()).count();
        said.push(format!("{done} of {} measured", plural(rows().count(), "row")));
    }
    let machine = result.get("machine").unwrap_or(&Value::Null);
    let kernel = text(machine, "kernel");
    if !kernel.is_empty() {
        said.push(kernel);
    }
    if let Some(cpus) = machine.get("cpus").and_then(Value::as_u64).filter(|cpus| *cpus > 0) {
        said.push(format!("{} ({})", plural(cpus as usize, "CPU"), text(machine, "cpu")));
    }
    if let Some(ns) = result.get("elapsed_ns").and_then(Value::as_u64).filter(|ns| *ns > 0) {
        said.push(format!("took {}", crate::table::time(ns as f64)));
    }
    said.join("; ")
}

/// What is missing below, and why.
fn missing(result: &Value) -> Vec<Call> {
    let mut calls = Vec::new();
    if result.get("interrupted").and_then(Value::as_bool) == Some(true) {
        let text = "The run was stopped early: the page has what was measured until then.".into();
        calls.push(Call { text, ..Call::default() });
    }
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    let mut not_run = 0;
    let mut add = |reason: String, who: String| match reasons
        .iter_mut()
        .find(|(known, _)| *known == reason)
    {
        Some((_, all)) => all.push(who),
        None => reasons.push((reason, vec![who])),
    };
    let runs = list(result, "runs");
    for run in runs {
        for cell in list(run, "cells") {
            match kind(cell) {
                "measured" => {}
                "not-run" => not_run += 1,
                _ => {
                    let reason = cell.pointer("/outcome/reason").and_then(Value::as_str);
                    let name = if runs.len() > 1 {
                        format!("{} on {}", text(cell, "name"), place_name(run))
                    } else {
                        text(cell, "name")
                    };
                    add(reason.unwrap_or("no reason is given").into(), name);
                }
            }
        }
    }
    for experiment in list(result, "experiments") {
        for row in list(experiment, "rows").iter().filter(|row| list(row, "samples").is_empty()) {
            let reason = row.get("invalid").and_then(Value::as_str);
            let name = format!("{}: {}", text(experiment, "name"), text(row, "name"));
            add(reason.unwrap_or("no reason is given").into(), name);
        }
    }
    let count: usize = reasons.iter().map(|(_, all)| all.len()).sum();
    if count > 0 {
        let mut details: Vec<String> = reasons
            .iter()
            .take(DETAILS_MAX)
            .map(|(reason, all)| format!("{}: {reason}", some_of(all)))
            .collect();
        if reasons.len() > DETAILS_MAX {
            details.push(format!(
                "and {} more reasons, in the tables below",
                reasons.len() - DETAILS_MAX
            ));
        }
        let text = match count {
            1 => "One way could not be measured:".into(),
            many => format!("{many} ways could not be measured:"),
        };
        calls.push(Call { text, details, ..Call::default() });
    }
    if not_run > 0 {
        let text = format!("{} had not run when the run ended.", plural(not_run, "way"));
        calls.push(Call { text, ..Call::default() });
    }
    calls
}

fn some_of(names: &[String]) -> String {
    match names {
        [.., _, _, _, _, _] => format!("{} and {} more", names[..3].join(", "), names.len() - 3),
        few => few.join(", "),
    }
}

/// Warnings with the same name and cure are one, with the texts below each other.
fn warnings(result: &Value) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for warning in list(result, "warnings") {
        let (name, said, cure) =
            (text(warning, "name"), text(warning, "text"), text(warning, "cure"));
        match calls.iter_mut().find(|call| call.name == name && call.cure == cure) {
            Some(call) => call.details.push(said),
            None => calls.push(Call { name, text: said, details: Vec::new(), cure }),
        }
    }
    for call in calls.iter_mut().filter(|call| call.details.len() >= DETAILS_MAX) {
        let more = call.details.len() - (DETAILS_MAX - 1);
        call.details.truncate(DETAILS_MAX - 1);
        call.details.push(format!("and {more} more of this kind, in the JSON"));
    }
    calls
}

fn engines(result: &Value) -> Vec<Advice> {
    let parts = list(result, "runs").iter().chain(list(result, "experiments"));
    let findings = parts.filter_map(|part| part.get("finding"));
    findings
        .flat_map(|finding| list(finding, "engines"))
        .map(|advice| Advice {
            engine: text(advice, "engine"),
            setting: text(advice, "setting"),
            reason: text(advice, "reason"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, wanted) in [
            (951_782_400_i64, "2000-02-29 00:00 UTC"),
            (1_763_667_000, "2025-11-20 19:30 UTC"),
            (4_107_542_399_i64, "2100-02-28 23:59 UTC"),
        ] {
            assert_eq!(when(&json!({"started_unix_s": unix_s})), wanted);
        }
        assert_eq!(when(&json!({})), "measured at an unknown time");
    }

    #[test]
    fn a_page_is_called_what_it_holds() {
        let place = json!({"name": "/data"});
        let of = |names: &[&str]| {
            let all: Vec<Value> =
                names.iter().map(|name| json!({"name": name, "place": place})).collect();
            title(&json!({"experiments": all}))
        };
        assert_eq!(of(&["text-1", "text-paced-4"]), "A text log on /data");
        for (experiment, command) in crate::experiment::list::commands(Size::Usual) {
            assert_eq!(of(&[experiment.name()]), format!("{} on /data", command.subject));
        }
        assert_eq!(of(&["pool", "read-random-warm"]), "2 experiments on /data");
        assert_eq!(of(&["of a later version"]), "An experiment on /data");
        assert_eq!(title(&json!({"runs": [{"place": place}]})), "Durable writes on /data");
        assert_eq!(title(&json!({"aa": {"place": place}})), "Identical ways of writing on /data");
        assert_eq!(title(&json!({})), "Durable writes on this disk");
    }

    #[test]
    fn claims_are_counted_and_disks_have_their_own_answer() {
        let claim = |verdict: &str| json!({"verdict": verdict});
        let claims = json!({"claims": [claim("confirmed"), claim("refuted"), claim("refuted"), claim("not-run")], "runs": [{}]});
        let said = answer(&claims);
        assert_eq!(
            said[0].0,
            "Of 4 claims, 1 are confirmed on this disk, 2 are refuted, and of 0 the lab cannot tell; 1 could not be run."
        );
        assert!(title(&claims).starts_with("Claims, checked"));
        let disks = json!({"disks": [{"directory": "a"}], "sentence": "Put the log on a.", "runs": [{}, {}]});
        assert_eq!((answer(&disks).len(), answer(&disks)[0].0.as_str()), (1, "Put the log on a."));
    }

    #[test]
    fn names_in_a_sentence_are_set_apart() {
        let sentence = Sentence("use `a b`, not `c`".into());
        let code: Vec<bool> = sentence.parts().iter().map(|part| part.code).collect();
        assert_eq!(code, [false, true, false, true, false]);
    }

    #[test]
    fn an_empty_result_says_that_nothing_was_measured() {
        let words = Words::of(&json!({"schema_version": 1, "runs": []}), "");
        assert_eq!(words.answer[0].0, "Nothing was measured.");
        assert!(words.tiles.is_empty() && words.missing.is_empty() && words.command.is_none());
    }

    #[test]
    fn of_several_places_it_counts_those_with_a_gain() {
        let run = |name: &str, speedup: f64, verdict: &str| {
            json!({"place": {"name": name}, "finding": {"sentence": "x", "best": "b", "naive": "n",
                   "speedup": {"speedup": speedup, "low": 1.0, "high": 2.0, "verdict": verdict}}})
        };
        let runs = [
            run("ext4", 2.6, "faster"),
            run("btrfs", 1.0, "tie"),
            json!({"place": {"name": "xfs"}}),
        ];
        let sentence = across(&runs).unwrap();
        assert!(
            sentence.starts_with("In 1 of 2 places")
                && sentence.contains("on ext4: there `b` is 2.6 times")
        );
        assert!(sentence.ends_with("1 place could not be compared."), "{sentence}");
        assert!(across(&runs[2..]).is_none());
    }

    /// `lab all` has several runs in one place.
    #[test]
    fn the_page_of_all_is_headed_by_the_quick_runs_answer() {
        let run = |name: &str, sentence: &str| {
            json!({"name": name, "place": {"name": "."}, "finding": {"sentence": sentence, "best": "b", "naive": "n",
                   "why": "fewer writes", "advice": "use `b`",
                   "speedup": {"speedup": 2.0, "low": 1.5, "high": 2.5, "verdict": "faster"}}})
        };
        let all = json!({"runs": [run("e1", "of e1"), run("quick", "`b` is the fastest"), run("e6", "of e6")]});
        let words = Words::of(&all, "");
        assert_eq!((words.answer.len(), words.answer[0].0.as_str()), (1, "`b` is the fastest"));
        let steps: Vec<(&str, &str)> =
            words.steps.iter().map(|(lead, said)| (*lead, said.0.as_str())).collect();
        assert_eq!(steps, [("Why", "fewer writes"), ("Do this", "use `b`")]);
    }

    #[test]
    fn reasons_are_told_once_and_warnings_too() {
        let cell = |name: &str| json!({"name": name, "outcome": {"kind": "invalid", "reason": "EOPNOTSUPP"}});
        let warning = |text: &str| json!({"name": "noisy", "text": text, "cure": "wait"});
        let result = json!({
            "interrupted": true,
            "runs": [{"place": {"name": "p"}, "cells": [cell("a"), cell("b"), {"name": "c", "outcome": {"kind": "not-run"}}]}],
            "warnings": [warning("one"), warning("two")]
        });
        let said = missing(&result);
        assert_eq!(said.len(), 3);
        assert_eq!(said[1].details, ["a, b: EOPNOTSUPP"]);
        let warned = warnings(&result);
        assert_eq!(
            (warned.len(), warned[0].details.as_slice()),
            (1, ["two".to_owned()].as_slice())
        );
    }
}
