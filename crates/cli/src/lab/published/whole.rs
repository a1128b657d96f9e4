//! Whether a part can be done here, whether its result is a whole one, and whether it is of this disk.
//!
//! *Owns*: those answers, in words. *May not touch*: what happens to a part that is not done.

use std::path::Path;

use inkstone_io::{Capabilities, is_root};
use inkstone_lab::machine::machine;
use inkstone_lab::precondition::{Precondition, discards};
use inkstone_lab::result::{LabResult, Machine, Outcome, Place, Run};
use inkstone_lab::site::place_of;
use inkstone_lab::warnings::DISK_FULL_WARNING;

use super::{Part, parse};
use crate::lab::LabCommand;

/// Warnings which mean that the result lacks something.
const MISSING: [&str; 5] = ["part-failed", "no-root", "left-out", "cut-short", DISK_FULL_WARNING];

/// What the result lacks, if anything.
pub(super) fn missing(result: &LabResult) -> Option<String> {
    let warnings = result.warnings.iter().filter(|warning| MISSING.contains(&warning.name.as_str()));
    let said = warnings.map(|warning| warning.text.clone());
    said.chain(result.runs.iter().filter_map(unmeasured)).next()
}

/// Why a run measured nothing at all.
fn unmeasured(run: &Run) -> Option<String> {
    if run.cells.iter().any(|cell| cell.outcome.measured().is_some()) {
        return None;
    }
    let reason = |outcome: &'_ Outcome| match outcome {
        Outcome::Invalid { reason } => Some(reason.clone()),
        Outcome::Measured(_) | Outcome::NotRun => None,
    };
    let why = run.cells.iter().find_map(|cell| reason(&cell.outcome));
    let why = why.unwrap_or_else(|| "it did not run".into());
    Some(format!("{} on {} measured nothing: {why}", run.name, run.place.name))
}

/// The user, the machine, and the disk to measure.
#[derive(Debug)]
pub(super) struct Here {
    is_root: bool,
    mount_options: Option<String>,
    place: Place,
    machine: Machine,
}

impl Here {
    pub(super) fn of(directory: &Path) -> anyhow::Result<Self> {
        let found = Capabilities::of(directory)?;
        let place = place_of(&found, ".");
        Ok(Self { is_root: is_root(), mount_options: found.mount.options, place, machine: machine() })
    }

    /// Where the result was measured, if on another disk, mount or machine than this.
    pub(super) fn is_not_of(&self, result: &LabResult) -> Option<String> {
        let its = &result.preamble.machine;
        let same = (&its.kernel, &its.cpu, its.cpus);
        if same != (&self.machine.kernel, &self.machine.cpu, self.machine.cpus) {
            return Some(format!(
                "another machine, or this one with another kernel or CPUs: {}",
                machine_words(its)
            ));
        }
        // An image of the lab lies on the disk itself.
        let mut chains =
            places(result).map(|place| std::iter::successors(Some(place), |one| one.host.as_deref()));
        if chains.any(|mut chain| chain.any(|place| mounted(place) == mounted(&self.place))) {
            return None;
        }
        let first = places(result).next()?;
        let bottom = std::iter::successors(Some(first), |one| one.host.as_deref()).last()?;
        Some(format!("{}, but this is {}", disk_words(bottom), disk_words(&self.place)))
    }

    /// Why the part cannot run here, and what to do about it.
    pub(super) fn refuses(&self, part: &Part, is_small: bool) -> anyhow::Result<Option<String>> {
        if part.needs_root && !self.is_root {
            return Ok(Some("it needs root: run the same command with sudo".into()));
        }
        let arguments = parse(&part.words(is_small))?;
        let Some(LabCommand::Write { device, .. }) = &arguments.command else { return Ok(None) };
        if !device.precondition.contains(&Precondition::Fill) {
            return Ok(None);
        }
        let option = discards(self.mount_options.as_deref());
        Ok(option.map(|option| {
            format!(
                "the mount discards free blocks at once ({option}), which undoes the fill: remount it with nodiscard \
                 (mount -o remount,nodiscard) for this part"
            )
        }))
    }
}

/// Every place with a measurement.
fn places(result: &LabResult) -> impl Iterator<Item = &Place> {
    let runs = result.runs.iter().map(|run| &run.place);
    let experiments = result.experiments.iter().map(|experiment| &experiment.place);
    let all = runs.chain(experiments).chain(result.fallocate.iter().map(|atlas| &atlas.place));
    // An image that could not be created has no place.
    all.filter(|place| !place.file_system.is_empty())
}

/// What two places must share to be the same mount. `discard` is left out, since a user changes it for a single part.
fn mounted(place: &Place) -> (&str, Option<&str>, Option<&str>, Vec<&str>) {
    let is_discard = |option: &&str| option.trim_start_matches("no").starts_with("discard");
    let options = place.mount_options.split(',').filter(|option| !is_discard(option)).collect();
    (&place.file_system, place.device.as_deref(), place.model.as_deref(), options)
}

/// `vda (ext4, rw,relatime)`.
fn disk_words(place: &Place) -> String {
    let device = place.device.as_deref().unwrap_or("no device");
    let model = place.model.as_deref().map_or_else(String::new, |model| format!(", {model}"));
    format!("{device} ({}, {}{model})", place.file_system, place.mount_options)
}

fn machine_words(machine: &Machine) -> String {
    format!("{} CPUs ({}), Linux {}", machine.cpus, machine.cpu, machine.kernel)
}

/// For the head of a table: the machine, and the disk below all measurements.
pub(super) fn measured_on(result: &LabResult) -> String {
    let on = places(result).find(|place| place.device.is_some()).or_else(|| places(result).next());
    let bottom = on.and_then(|place| std::iter::successors(Some(place), |one| one.host.as_deref()).last());
    let disk = bottom.map_or_else(|| "an unknown disk".into(), disk_words);
    format!("Measured on {disk}; {}", machine_words(&result.preamble.machine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::published::PARTS;

    fn result(more: &str) -> LabResult {
        let text = format!(
            r#"{{"schema_version":1,"inkstone_version":"","command":"","started_unix_s":0,"elapsed_ns":0,
            "interrupted":false,"machine":{{"kernel":"","cpu":"","cpus":1,"memory_bytes":0,"root":true}},
            "harness":{{"commit_ns":0,"clock_ns":0}},"experiments":[],"fallocate":[],"aa":null,{more}}}"#
        );
        serde_json::from_str(&text).expect("a result")
    }

    #[test]
    fn a_result_that_lacks_something_is_not_whole() {
        assert_eq!(missing(&result(r#""runs":[],"warnings":[]"#)), None);
        let warned = |name: &str| {
            result(&format!(r#""runs":[],"warnings":[{{"name":"{name}","text":"it is","cure":"x"}}]"#))
        };
        for name in ["part-failed", "no-root", "left-out", "cut-short", "disk-full"] {
            assert_eq!(missing(&warned(name)).as_deref(), Some("it is"), "{name}");
        }
        assert_eq!(missing(&warned("device-busy")), None);
    }

    #[test]
    fn a_part_that_cannot_be_done_here_is_refused_before_it_starts() {
        let part = |name: &str| PARTS.iter().find(|part| part.name == name).expect("a part");
        let here = |is_root, options: &str| Here {
            is_root,
            mount_options: Some(options.into()),
            place: Place::default(),
            machine: Machine::default(),
        };
        let refuses = |here: &Here, name| here.refuses(part(name), false).expect("arguments");
        let user = here(false, "rw");
        assert!(refuses(&user, "zero-range").is_some_and(|why| why.contains("sudo")));
        assert_eq!(refuses(&user, "e5"), None);
        let root = here(true, "rw,discard");
        assert!(refuses(&root, "e1-device").is_some_and(|why| why.contains("remount it with nodiscard")));
        assert_eq!(refuses(&root, "e1-removed"), None);
        assert_eq!(refuses(&here(true, "rw,relatime"), "e1-device"), None);
    }

    #[test]
    fn a_result_of_another_disk_or_machine_is_told_from_one_of_this() {
        let place = |device: &str, options: &str| Place {
            file_system: "ext4".into(),
            device: Some(device.into()),
            mount_options: options.into(),
            ..Place::default()
        };
        let with = |place: Place| {
            let mut made = result(r#""runs":[],"warnings":[]"#);
            made.runs.push(Run { place, ..Run::default() });
            made
        };
        let here = Here {
            is_root: true,
            mount_options: None,
            place: place("vda", "rw,relatime"),
            machine: with(Place::default()).preamble.machine,
        };
        assert_eq!(here.is_not_of(&with(place("vda", "rw,relatime"))), None);
        assert_eq!(here.is_not_of(&with(place("vda", "rw,relatime,nodiscard"))), None);
        let image = Place { host: Some(Box::new(place("vda", "rw,relatime"))), ..place("loop3", "rw") };
        assert_eq!(here.is_not_of(&with(image)), None);
        for (device, options) in [("vdb", "rw,relatime"), ("vda", "rw,relatime,nobarrier")] {
            let said = here.is_not_of(&with(place(device, options))).expect("another");
            assert!(said.contains(&format!("{device} (ext4, {options})")), "{said}");
        }
        let mut other = with(place("vda", "rw,relatime"));
        other.preamble.machine.kernel = "1.0".into();
        assert!(here.is_not_of(&other).is_some_and(|said| said.contains("Linux 1.0")));
        assert!(measured_on(&other).starts_with("Measured on vda (ext4, rw,relatime); 1 CPUs"));
    }
}
