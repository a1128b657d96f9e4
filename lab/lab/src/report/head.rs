//! The text of the page before any chart: the answer, what is missing, the warnings.
//!
//! *Owns*: that text. *May not touch*: findings; they come from the lab. Every field may be
//! missing.

use serde_json::Value;

/// The head of a page.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) title: String,
    pub(super) answer: Vec<Sentence>,
    /// `Why` and `Do this`, if the answer is one run's.
    pub(super) steps: Vec<(&'static str, Sentence)>,
    pub(super) measured: String,
    pub(super) command: String,
    /// What is missing, then the warnings.
    pub(super) calls: Vec<Call>,
    pub(super) measured_by: String,
}

/// A sentence with names in `backticks`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sentence(String);

impl Sentence {
    /// Its pieces, and whether each is a name.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&str, bool)> {
        self.0.split('`').enumerate().map(|(index, text)| (text, index % 2 == 1))
    }
}

/// A note that a reader should see before the rest.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) text: String,
    pub(super) details: Vec<String>,
    pub(super) cure: String,
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

/// The text `name` of a part's finding.
fn found(part: &Value, name: &str) -> String {
    part.get("finding").map(|finding| text(finding, name)).unwrap_or_default()
}

fn place_name(part: &Value) -> String {
    let place = part.get("place").unwrap_or(&Value::Null);
    let names = [text(place, "name"), text(place, "directory")];
    names.into_iter().find(|name| !name.is_empty()).unwrap_or("a place without a name".into())
}

impl Head {
    pub(super) fn of(result: &Value) -> Self {
        let step = |(lead, name)| {
            let said = found(heading(result)?, name);
            (!said.is_empty()).then_some((lead, Sentence(said)))
        };
        let mut calls = missing(result);
        calls.extend(warnings(result));
        let version = text(result, "inkstone_version");
        Self {
            title: title(result),
            answer: answer(result).into_iter().map(Sentence).collect(),
            steps: [("Why:", "why"), ("Do this:", "advice")].into_iter().filter_map(step).collect(),
            measured: measured(result),
            command: text(result, "command"),
            calls,
            measured_by: if version.is_empty() { "an unknown version".into() } else { version },
        }
    }
}

/// What the result contains, and from where.
fn title(result: &Value) -> String {
    let experiments = list(result, "experiments");
    let what = if !list(result, "disks").is_empty() {
        return "Which disk is best for the log".into();
    } else if !list(result, "claims").is_empty() {
        "Claims, checked".into()
    } else if !list(result, "runs").is_empty() || result.get("experiments").is_none() {
        "Durable writes".into()
    } else {
        match experiments {
            [] if !list(result, "fallocate").is_empty() => "fallocate, mode by mode,".into(),
            [] => "Nothing".into(),
            [one] if !text(one, "title").is_empty() => text(one, "title"),
            many => plural(many.len(), "experiment"),
        }
    };
    let parts = ["runs", "experiments", "fallocate"].iter().flat_map(|part| list(result, part));
    let mut places: Vec<String> = parts.map(place_name).filter(|name| name != ".").collect();
    places.dedup();
    match places.as_slice() {
        [] => format!("{what} on this disk"),
        [one] => format!("{what} on {one}"),
        many => format!("{what} in {}", plural(many.len(), "place")),
    }
}

/// The run whose finding heads the page: the only one, or of several in one place (`lab all`) the
/// first that says what to do.
fn heading(result: &Value) -> Option<&Value> {
    if !list(result, "disks").is_empty() || !list(result, "claims").is_empty() {
        return None;
    }
    let has = |run: &&Value, name: &str| !found(run, name).is_empty();
    match list(result, "runs") {
        [one] => Some(one).filter(|run| has(run, "sentence")),
        many if many.iter().all(|run| place_name(run) == place_name(&many[0])) => {
            many.iter().find(|run| has(run, "sentence") && has(run, "advice"))
        }
        _ => None,
    }
}

/// The first thing to read. For one place: its finding. For several: in how many there is anything
/// to gain, and where most.
fn answer(result: &Value) -> Vec<String> {
    let (runs, experiments) = (list(result, "runs"), list(result, "experiments"));
    let claims = list(result, "claims");
    if !list(result, "disks").is_empty() {
        return vec![text(result, "sentence")];
    }
    if !claims.is_empty() {
        let of = |verdict| claims.iter().filter(|claim| text(claim, "verdict") == verdict).count();
        return vec![format!(
            "Of {}, {} are confirmed on this disk, {} are refuted, of {} the lab cannot tell, and \
             {} could not be run.",
            plural(claims.len(), "claim"),
            of("confirmed"),
            of("refuted"),
            of("cannot-tell"),
            of("not-run")
        )];
    }
    if let Some(run) = heading(result) {
        return vec![found(run, "sentence")];
    }
    if let Some(sentence) = across(runs) {
        return vec![sentence];
    }
    let sentences = runs.iter().chain(experiments).map(|part| found(part, "sentence"));
    let sentences: Vec<String> = sentences.filter(|sentence| !sentence.is_empty()).collect();
    if !sentences.is_empty() {
        return sentences;
    }
    let is_measured = |cell: &Value| cell.pointer("/outcome/kind") == Some(&"measured".into());
    let sentence = if runs.iter().flat_map(|run| list(run, "cells")).any(is_measured)
        || experiments.iter().any(|one| !list(one, "rows").is_empty())
    {
        "This run has no conclusion in words; the charts show what was measured."
    } else if !list(result, "fallocate").is_empty() {
        "What each mode of fallocate does to a file here, call by call."
    } else {
        "Nothing was measured."
    };
    vec![sentence.into()]
}

/// The best of several places. `None` if none of them could be compared.
fn across(runs: &[Value]) -> Option<String> {
    let speedup = |run: &Value| run.pointer("/finding/speedup/speedup").and_then(Value::as_f64);
    let is_faster =
        |run: &&Value| run.pointer("/finding/speedup/verdict") == Some(&"faster".into());
    let compared = runs.iter().filter(|run| speedup(run).is_some()).count();
    if runs.len() < 2 || compared == 0 {
        return None;
    }
    let rest = match runs.len() - compared {
        0 => String::new(),
        left => format!(" {} could not be compared.", plural(left, "place")),
    };
    let places = plural(compared, "place");
    let faster = runs.iter().filter(is_faster).filter_map(|run| Some((speedup(run)?, run)));
    let count = faster.clone().count();
    let Some((most, run)) = faster.max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return Some(format!(
            "In none of {places} was a durable way measurably faster than the naive one.{rest}"
        ));
    };
    Some(format!(
        "In {count} of {places} the best durable way is measurably faster than the naive one. It \
         gains most on {}: there `{}` is {most:.1} times as fast as `{}`.{rest}",
        place_name(run),
        found(run, "best"),
        found(run, "naive")
    ))
}

fn measured(result: &Value) -> String {
    let machine = result.get("machine").unwrap_or(&Value::Null);
    let cpus = machine.get("cpus").and_then(Value::as_u64).filter(|cpus| *cpus > 0);
    let cpus =
        cpus.map(|cpus| format!("{} ({})", plural(cpus as usize, "CPU"), text(machine, "cpu")));
    let took = result.get("elapsed_ns").and_then(Value::as_f64).filter(|ns| *ns > 0.0);
    let took = took.map(|ns| format!("took {}", crate::table::time(ns)));
    let said = [Some(text(machine, "kernel")), cpus, took].into_iter().flatten();
    said.filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; ")
}

/// What is missing below, and why: each reason once, with those that it is about.
fn missing(result: &Value) -> Vec<Call> {
    let call = |text: String, details| Call { text, details, cure: String::new() };
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    let mut add = |reason: Option<&Value>, who: String| {
        let reason = reason.and_then(Value::as_str).unwrap_or("no reason is given").to_owned();
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, all)) => all.push(who),
            None => reasons.push((reason, vec![who])),
        }
    };
    let mut not_run = 0;
    for cell in list(result, "runs").iter().flat_map(|run| list(run, "cells")) {
        match cell.pointer("/outcome/kind").and_then(Value::as_str) {
            Some("measured") => {}
            Some("not-run") => not_run += 1,
            _ => add(cell.pointer("/outcome/reason"), text(cell, "name")),
        }
    }
    for experiment in list(result, "experiments") {
        for row in list(experiment, "rows").iter().filter(|row| list(row, "samples").is_empty()) {
            let who = format!("{}: {}", text(experiment, "name"), text(row, "name"));
            add(row.get("invalid"), who);
        }
    }
    let mut calls = Vec::new();
    if result.get("interrupted") == Some(&Value::Bool(true)) {
        let words = "The run was stopped early: the page has what was measured until then.";
        calls.push(call(words.into(), Vec::new()));
    }
    let count: usize = reasons.iter().map(|(_, all)| all.len()).sum();
    if count > 0 {
        let details = reasons.iter().map(|(reason, all)| format!("{}: {reason}", some_of(all)));
        let words = format!("{} could not be measured:", plural(count, "way"));
        calls.push(call(words, limited(details.collect())));
    }
    if not_run > 0 {
        let words = format!("{} had not run when the run ended.", plural(not_run, "way"));
        calls.push(call(words, Vec::new()));
    }
    calls
}

fn some_of(names: &[String]) -> String {
    match names {
        [.., _, _, _, _, _] => format!("{} and {} more", names[..3].join(", "), names.len() - 3),
        few => few.join(", "),
    }
}

fn limited(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > DETAILS_MAX {
        let more = lines.split_off(DETAILS_MAX - 1).len();
        lines.push(format!("and {more} more of this kind, in the JSON"));
    }
    lines
}

/// Warnings with the same name and cure are one, with the texts below each other.
fn warnings(result: &Value) -> Vec<Call> {
    let mut calls: Vec<(String, Call)> = Vec::new();
    for warning in list(result, "warnings") {
        let [name, text, cure] = ["name", "text", "cure"].map(|field| text(warning, field));
        match calls.iter_mut().find(|(known, call)| *known == name && call.cure == cure) {
            Some((_, call)) => call.details.push(text),
            None => calls.push((name, Call { text, details: Vec::new(), cure })),
        }
    }
    let limit = |(_, call): (_, Call)| Call { details: limited(call.details), ..call };
    calls.into_iter().map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_is_called_what_it_holds() {
        let place = json!({"name": "/data"});
        let one = json!({"name": "pool", "title": "A pool of threads", "place": place});
        assert_eq!(title(&json!({"experiments": [one]})), "A pool of threads on /data");
        assert_eq!(title(&json!({"experiments": [one, one]})), "2 experiments on /data");
        assert_eq!(title(&json!({"runs": [{"place": place}]})), "Durable writes on /data");
        assert_eq!(title(&json!({})), "Durable writes on this disk");
        let sentence = Sentence("use `a b`, not `c`".into());
        let code: Vec<bool> = sentence.parts().map(|(_, code)| code).collect();
        assert_eq!(code, [false, true, false, true, false]);
    }

    #[test]
    fn claims_are_counted_and_disks_have_their_own_answer() {
        let claim = |verdict: &str| json!({"verdict": verdict});
        let claims = ["confirmed", "refuted", "refuted", "not-run"].map(claim);
        let claims = json!({"claims": claims, "runs": [{}]});
        let said = "Of 4 claims, 1 are confirmed on this disk, 2 are refuted, of 0 the lab cannot \
                    tell, and 1 could not be run.";
        assert_eq!(answer(&claims), [said]);
        assert!(title(&claims).starts_with("Claims, checked"));
        let disks = json!({"disks": [{}], "sentence": "Put the log on a.", "runs": [{}, {}]});
        assert_eq!(answer(&disks), ["Put the log on a."]);
        assert_eq!(answer(&json!({"runs": []})), ["Nothing was measured."]);
    }

    #[test]
    fn of_several_places_it_counts_those_with_a_gain() {
        let run = |name: &str, speedup: f64, verdict: &str| {
            let speedup = json!({"speedup": speedup, "low": 1.0, "high": 2.0, "verdict": verdict});
            let finding = json!({"sentence": "x", "best": "b", "naive": "n", "speedup": speedup});
            json!({"place": {"name": name}, "finding": finding})
        };
        let (ext4, btrfs) = (run("ext4", 2.6, "faster"), run("btrfs", 1.0, "tie"));
        let xfs = json!({"place": {"name": "xfs"}});
        let said = answer(&json!({"runs": [ext4, btrfs, xfs]})).remove(0);
        assert!(said.starts_with("In 1 of 2 places"), "{said}");
        assert!(said.contains("on ext4: there `b` is 2.6 times"), "{said}");
        assert!(said.ends_with("1 place could not be compared."), "{said}");
        assert!(across(&[xfs.clone(), xfs]).is_none());
    }

    /// `lab all` has several runs in one place.
    #[test]
    fn the_page_of_all_is_headed_by_the_run_that_says_what_to_do() {
        let run = |sentence: &str, advice: Option<&str>| {
            let finding = json!({"sentence": sentence, "why": "fewer writes", "advice": advice});
            json!({"place": {"name": "."}, "finding": finding})
        };
        let runs = [run("of e1", None), run("`b` is best", Some("use `b`")), run("of e6", None)];
        let head = Head::of(&json!({"runs": runs}));
        assert_eq!(head.answer, [Sentence("`b` is best".into())]);
        assert_eq!(head.steps[1], ("Do this:", Sentence("use `b`".into())));
    }

    #[test]
    fn reasons_are_told_once_and_warnings_too() {
        let cell = |name: &str| json!({"name": name, "outcome": {"kind": "invalid", "reason": "EOPNOTSUPP"}});
        let not_run = json!({"name": "c", "outcome": {"kind": "not-run"}});
        let warning = |text: &str| json!({"name": "noisy", "text": text, "cure": "wait"});
        let calls = Head::of(&json!({
            "interrupted": true,
            "runs": [{"place": {"name": "p"}, "cells": [cell("a"), cell("b"), not_run]}],
            "warnings": [warning("one"), warning("two")]
        }))
        .calls;
        assert_eq!(calls.len(), 4);
        assert_eq!(calls[1].details, ["a, b: EOPNOTSUPP"]);
        assert_eq!((calls[3].details.len(), calls[3].cure.as_str()), (1, "wait"));
    }
}
