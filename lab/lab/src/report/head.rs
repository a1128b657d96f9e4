//! The text of the page before any chart: the answer, what is missing, the warnings.
//!
//! *Owns*: that text. *May not touch*: findings; they come from the lab.

use super::escape::escaped;
use crate::result::{Compared, Judged, LabResult, Place, Preamble, Table};
use crate::table::by_reason;
use crate::table::numbers::time;

/// What stands between the title and the charts.
pub(super) fn html(result: &LabResult) -> String {
    let mut html = String::new();
    for sentence in answer(result) {
        html += &format!("\n<p class=\"lead\">{}</p>", marked(&sentence));
    }
    // `Why` and `Do this`, if the answer is one table's.
    let finding = heading(result).and_then(|table| table.finding.as_ref());
    let steps = finding.map_or([None, None], |found| {
        [("Why:", &found.why), ("Do this:", &found.advice)]
            .map(|(lead, said)| Some((lead, said.as_ref()?)))
    });
    for (lead, said) in steps.into_iter().flatten() {
        html += &format!("\n<p class=\"step\"><b>{lead}</b> {}</p>", marked(said));
    }
    let Preamble { machine, elapsed_ns, command, .. } = &result.preamble;
    let measured = format!(
        "{}; {} ({}); took {}",
        machine.kernel,
        plural(machine.cpus as usize, "CPU"),
        machine.cpu,
        time(*elapsed_ns as f64)
    );
    html += &format!("\n<p class=\"facts\">{}</p>", escaped(&measured));
    if !command.is_empty() {
        let command = escaped(command);
        html += &format!("\n<p class=\"facts\">Measured by: <code>{command}</code></p>");
    }
    missing(result).into_iter().chain(warnings(result)).for_each(|call| html += &call.html());
    html
}

/// A sentence with names in `backticks`.
fn marked(sentence: &str) -> String {
    let piece = |(index, text)| match index % 2 {
        0 => escaped(text),
        _ => format!("<code>{}</code>", escaped(text)),
    };
    sentence.split('`').enumerate().map(piece).collect()
}

/// A note that a reader should see before the rest.
#[derive(Debug)]
struct Call {
    text: String,
    details: Vec<String>,
    cure: String,
}

impl Call {
    fn html(&self) -> String {
        let mut html = format!("\n<div class=\"call\"><p>{}</p>", escaped(&self.text));
        if !self.details.is_empty() {
            let item = |detail: &String| format!("<li>{}</li>", escaped(detail));
            html += &format!("<ul>{}</ul>", self.details.iter().map(item).collect::<String>());
        }
        if !self.cure.is_empty() {
            html += &format!("<p class=\"cure\">What to do: {}</p>", escaped(&self.cure));
        }
        html + "</div>"
    }
}

/// The most lines under one heading; the rest is only counted.
const DETAILS_MAX: usize = 8;

fn plural(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

fn place_name(place: &Place) -> &str {
    if place.name.is_empty() { &place.directory } else { &place.name }
}

/// What the result contains, and from where.
pub(super) fn title(result: &LabResult) -> String {
    let what = match result.tables.as_slice() {
        _ if !result.disks.is_empty() => return "Which disk is best for the log".into(),
        _ if !result.claims.is_empty() => "Claims, checked".into(),
        [one] if !one.title.is_empty() => one.title.clone(),
        _ => "Durable writes".into(),
    };
    let places = result.tables.iter().map(|table| &table.place);
    let mut places: Vec<&str> = places.map(place_name).filter(|name| *name != ".").collect();
    places.dedup();
    match places.as_slice() {
        [] => format!("{what} on this disk"),
        [one] => format!("{what} on {one}"),
        many => format!("{what} in {}", plural(many.len(), "place")),
    }
}

/// The table whose finding heads the page: the only one, or of several in one place (`lab all`) the
/// first that says what to do.
fn heading(result: &LabResult) -> Option<&Table> {
    if !result.disks.is_empty() || !result.claims.is_empty() {
        return None;
    }
    let place = |table: &Table| place_name(&table.place).to_owned();
    match result.tables.as_slice() {
        [one] => one.finding.is_some().then_some(one),
        [first, rest @ ..] if rest.iter().all(|table| place(table) == place(first)) => {
            let has_advice =
                |table: &&Table| table.finding.as_ref().is_some_and(|found| found.advice.is_some());
            result.tables.iter().find(has_advice)
        }
        _ => None,
    }
}

/// The first thing to read. For one place: its finding. For several: in how many there is anything
/// to gain, and where most.
fn answer(result: &LabResult) -> Vec<String> {
    if let Some(sentence) = &result.sentence {
        return vec![sentence.clone()];
    }
    if !result.claims.is_empty() {
        let of = |judged| result.claims.iter().filter(|claim| claim.verdict == judged).count();
        return vec![format!(
            "Of {}, {} are confirmed on this disk, {} are refuted, of {} the lab cannot tell, and \
             {} could not be run.",
            plural(result.claims.len(), "claim"),
            of(Judged::Confirmed),
            of(Judged::Refuted),
            of(Judged::CannotTell),
            of(Judged::NotRun)
        )];
    }
    let sentence = |table: &Table| Some(table.finding.as_ref()?.sentence.clone());
    if let Some(said) = heading(result).and_then(sentence) {
        return vec![said];
    }
    if let Some(said) = across(&result.tables) {
        return vec![said];
    }
    let sentences: Vec<String> = result.tables.iter().filter_map(sentence).collect();
    if !sentences.is_empty() {
        return sentences;
    }
    let sentence = if result.tables.iter().any(Table::has_content) {
        "This run has no conclusion in words; the charts show what was measured."
    } else {
        "Nothing was measured."
    };
    vec![sentence.into()]
}

/// In how many of several places a durable way is shown to be faster, and where most. `None` if no
/// place has a finding.
fn across(tables: &[Table]) -> Option<String> {
    let found = tables.iter().filter(|table| table.finding.is_some()).count();
    if tables.len() < 2 || found == 0 {
        return None;
    }
    let first = |table: &Table| table.finding.as_ref()?.first.clone();
    let faster: Vec<(&Table, Compared)> =
        tables.iter().filter_map(|table| Some((table, first(table)?))).collect();
    let places = plural(tables.len(), "place");
    let most = faster.iter().max_by(|a, b| a.1.speedup.speedup.total_cmp(&b.1.speedup.speedup));
    Some(match most {
        None => format!("In none of {places} is a durable way shown to be faster than another."),
        Some((table, most)) => format!(
            "In {} of {places} a durable way is shown to be faster than one that differs from it \
             in one thing. The gain is largest on {}: there `{}` is {:.2} times as fast as `{}`.",
            faster.len(),
            place_name(&table.place),
            most.way,
            most.speedup.speedup,
            most.against
        ),
    })
}

/// What is missing below, and why: each reason once, with those that it is about.
fn missing(result: &LabResult) -> Vec<Call> {
    let call = |text: String, details| Call { text, details, cure: String::new() };
    let mut calls = Vec::new();
    if result.preamble.interrupted {
        let words = "The run was stopped early: the page has what was measured until then.";
        calls.push(call(words.into(), Vec::new()));
    }
    let ways = result.tables.iter().flat_map(|table| &table.ways);
    let ways = ways.filter_map(|way| Some((way.name.as_str(), way.missing.as_deref()?)));
    let count = ways.clone().count();
    if count > 0 {
        let details = by_reason(ways).into_iter().map(|(reason, all)| format!("{all}: {reason}"));
        let words = format!("{} could not be measured:", plural(count, "way"));
        calls.push(call(words, limited(details.collect())));
    }
    calls
}

fn limited(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > DETAILS_MAX {
        let more = lines.split_off(DETAILS_MAX - 1).len();
        lines.push(format!("and {more} more of this kind, in the JSON"));
    }
    lines
}

/// Warnings with the same name and cure are one, with the texts below each other.
fn warnings(result: &LabResult) -> Vec<Call> {
    let mut calls: Vec<(&str, Call)> = Vec::new();
    for warning in &result.warnings {
        let is_it =
            |(name, call): &&mut (&str, Call)| *name == warning.name && call.cure == warning.cure;
        let (text, cure) = (warning.text.clone(), warning.cure.clone());
        match calls.iter_mut().find(is_it) {
            Some((_, call)) => call.details.push(text),
            None => calls.push((&warning.name, Call { text, details: Vec::new(), cure })),
        }
    }
    let limit = |(_, call): (&str, Call)| Call { details: limited(call.details), ..call };
    calls.into_iter().map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Finding, Relative, Verdict, Warning, Way};

    fn of(tables: Vec<Table>) -> LabResult {
        LabResult { tables, ..LabResult::default() }
    }

    fn table(place: &str, finding: Option<Finding>) -> Table {
        let place = Place { name: place.into(), ..Place::default() };
        Table { place, finding, ..Table::default() }
    }

    #[test]
    fn a_page_is_called_what_it_holds() {
        let one = Table { title: "A pool of threads".into(), ..table("/data", None) };
        assert_eq!(title(&of(vec![one.clone()])), "A pool of threads on /data");
        assert_eq!(title(&of(vec![one.clone(), one])), "Durable writes on /data");
        assert_eq!(title(&LabResult::default()), "Durable writes on this disk");
        assert_eq!(answer(&LabResult::default()), ["Nothing was measured."]);
        let said = marked("use `a b`, not `<c>`");
        assert_eq!(said, "use <code>a b</code>, not <code>&#60;c&#62;</code>");
    }

    /// "In 5 of 5 places the best way is faster; 7 could not be compared": 12 were measured.
    #[test]
    fn of_several_places_it_counts_those_with_a_gain_among_all() {
        let place = |name: &str, speedup: Option<f64>| {
            let first = speedup.map(|speedup| Compared {
                way: "b".into(),
                against: "n".into(),
                speedup: Relative::with_interval(speedup, (1.1, 3.0), Verdict::Faster),
            });
            table(name, Some(Finding { first, ..Finding::default() }))
        };
        let tables = vec![place("ext4", Some(2.6)), place("btrfs", None), table("xfs", None)];
        let said = answer(&of(tables)).remove(0);
        assert!(said.starts_with("In 1 of 3 places"), "{said}");
        assert!(said.ends_with("on ext4: there `b` is 2.60 times as fast as `n`."), "{said}");
        assert!(across(&[table("a", None), table("b", None)]).is_none());
    }

    /// `lab all` has several tables in one place.
    #[test]
    fn the_page_of_all_is_headed_by_the_table_that_says_what_to_do() {
        let run = |sentence: &str, advice: Option<&str>| {
            let advice = advice.map(Into::into);
            let finding = Finding { sentence: sentence.into(), advice, ..Finding::default() };
            table(".", Some(finding))
        };
        let tables =
            vec![run("of e1", None), run("`b` is best", Some("use `b`")), run("of e6", None)];
        let head = html(&of(tables));
        let step = "is best</p>\n<p class=\"step\"><b>Do this:</b> use <code>b</code></p>";
        assert!(head.contains(step) && !head.contains("of e"), "{head}");
    }

    #[test]
    fn reasons_are_told_once_and_warnings_too() {
        let way = |name: &str| Way {
            name: name.into(),
            missing: Some("EOPNOTSUPP".into()),
            ..Way::default()
        };
        let warning =
            |text: &str| Warning { name: "noisy".into(), text: text.into(), cure: "wait".into() };
        let mut result = of(vec![Table { ways: vec![way("a"), way("b")], ..table("p", None) }]);
        result.warnings = vec![warning("one"), warning("two")];
        result.preamble.interrupted = true;
        let head = html(&result);
        assert_eq!(head.matches("class=\"call\"").count(), 3, "{head}");
        assert!(head.contains("<li>a and 1 more: EOPNOTSUPP</li>"), "{head}");
        assert!(head.contains("<p>one</p><ul><li>two</li></ul>") && head.contains(": wait<"));
    }
}
