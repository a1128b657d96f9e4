//! The text of a comparison.
//!
//! *Owns*: the sentence and the notes. *May not touch*: verdicts.

use crate::result::{Machine, Place};
use crate::stats::{SAME_WITHIN, median};

use super::judge::ALPHA;
use super::series::{Group, Read, centre};
use super::{Change, Comparison, Line};

/// The answer.
pub(super) fn sentence(comparison: &Comparison) -> String {
    let counts = [Change::Slower, Change::Faster, Change::Same, Change::CannotTell]
        .map(|change| comparison.count(change));
    let [slower, faster, same, unknown] = counts;
    let rest = format!(
        "{same} the same (within {:.0}%), no answer for {unknown}",
        (SAME_WITHIN - 1.0) * 100.0
    );
    match (slower, faster) {
        (0, 0) if same == 0 => {
            format!("No answer: none of {unknown} is within the margin or beyond the noise.")
        }
        (0, 0) => format!("Nothing became slower: {rest}."),
        (0, _) => {
            format!("Nothing became slower. Faster: {}; {rest}.", named(comparison, Change::Faster))
        }
        (_, 0) => format!("Slower: {}; {rest}.", named(comparison, Change::Slower)),
        _ => format!(
            "Slower: {}. Faster: {}; {rest}.",
            named(comparison, Change::Slower),
            named(comparison, Change::Faster)
        ),
    }
}

fn named(comparison: &Comparison, change: Change) -> String {
    let name = |line: &Line| {
        format!("`{}` ({:.2} times the time)", line.name, line.ratio.unwrap_or(f64::NAN))
    };
    let names: Vec<String> =
        comparison.lines.iter().filter(|line| line.change == change).map(name).collect();
    names.join(", ")
}

/// What a reader must know about it.
pub(super) fn notes(first: &Read, second: &Read) -> Vec<String> {
    let mut notes = Vec::new();
    if first.groups.iter().any(|group| group.has_floors) {
        notes.push(
            "Each row's time is divided by that of the bare overwrite measured beside it, in the same rounds.".into(),
        );
    } else {
        notes.push(
            "Each way is compared relative to its own run: what a round or a run did to all ways alike (their median; the \
             baseline if there are fewer than five) is subtracted. So drift of the machine, or a disk that is slower as a \
             whole, does not count."
                .into(),
        );
        notes.extend(drift(first, second));
    }
    notes.push(format!(
        "The noise between runs is estimated from the scatter of all ways; the chance of any false alarm is at most {:.0}% (Holm 1979).",
        ALPHA * 100.0
    ));
    if first.machine.cpu != second.machine.cpu || first.machine.cpus != second.machine.cpus {
        let machine = |machine: &Machine| format!("{} x {}", machine.cpus, machine.cpu);
        notes.push(format!(
            "These are different machines ({}; {}): only ratios inside each run are compared, not how fast either is.",
            machine(&first.machine),
            machine(&second.machine)
        ));
    } else if first.machine.kernel != second.machine.kernel {
        notes.push(format!(
            "The kernels differ: {}; {}.",
            first.machine.kernel, second.machine.kernel
        ));
    }
    let other = first.places.iter().zip(&second.places).find(|(a, b)| disk(a) != disk(b));
    if let Some((a, b)) = other {
        notes.push(format!("The disks differ: {}; {}.", disk(a), disk(b)));
    }
    if first.version != second.version {
        notes.push(format!(
            "The versions of inkstone differ: {}; {}.",
            first.version, second.version
        ));
    }
    notes
}

fn disk(place: &Place) -> String {
    let device = place.device.as_deref().unwrap_or("no device");
    // A loop device's number changes from run to run.
    let device = if device.starts_with("loop") { "a loop device" } else { device };
    let model = place.model.as_deref().map(|model| format!(", {model}")).unwrap_or_default();
    format!("{} on {device}{model}", place.file_system)
}

/// How the runs differ as a whole.
fn drift(first: &Read, second: &Read) -> Vec<String> {
    let of = |group: &Group| {
        let other = second.groups.iter().find(|other| other.name == group.name)?;
        let shifts = group.series.iter().filter_map(|series| {
            let found = other.series.iter().find(|found| found.name == series.name)?;
            let logs = |logs: &std::collections::BTreeMap<u32, f64>| {
                logs.values().copied().collect::<Vec<_>>()
            };
            let (a, b) = (logs(&series.logs), logs(&found.logs));
            (!a.is_empty() && !b.is_empty()).then(|| centre(&b) - centre(&a))
        });
        let whole = median(&shifts.collect::<Vec<_>>())?.exp();
        Some(format!(
            "{}: the second run as a whole took {whole:.2} times as long per commit as the first.",
            group.name
        ))
    };
    first.groups.iter().filter_map(of).collect()
}
