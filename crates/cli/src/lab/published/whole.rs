//! Whether a part can be done here, and whether its result is a whole one.
//!
//! *Owns*: those two answers, in words. *May not touch*: what becomes of a part that is not done.

use std::path::Path;

use anyhow::Context as _;
use inkstone_io::{Capabilities, is_root};
use inkstone_lab::precondition::{Precondition, discards};
use inkstone_lab::result::{LabResult, Outcome, Run};
use inkstone_lab::warnings::DISK_FULL_WARNING;

use super::{Part, parse};
use crate::lab::LabCommand;

/// These say that something which was asked for is not in the result.
const MISSING: [&str; 5] = ["part-failed", "no-root", "left-out", "cut-short", DISK_FULL_WARNING];

/// What is not in the result, if anything is not.
pub(super) fn missing(result: &LabResult) -> Option<String> {
    let warnings = result.warnings.iter().filter(|warning| MISSING.contains(&warning.name.as_str()));
    let said = warnings.map(|warning| warning.text.clone());
    said.chain(result.runs.iter().filter_map(unmeasured)).next()
}

/// A run of which nothing came: its question was refused.
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
    Some(format!("nothing was measured of {} on {}: {why}", run.name, run.place.name))
}

/// The user, and the disk that is to be measured.
#[derive(Debug)]
pub(super) struct Here {
    is_root: bool,
    mount_options: Option<String>,
}

impl Here {
    pub(super) fn of(directory: &Path) -> anyhow::Result<Self> {
        let found =
            Capabilities::of(directory).with_context(|| format!("look at {}", directory.display()))?;
        Ok(Self { is_root: is_root(), mount_options: found.mount.options })
    }

    /// Why the part cannot be done here, with what to do about it.
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
                "the mount discards free blocks at once ({option}), so that no fill stays: remount it with nodiscard \
                 (mount -o remount,nodiscard) for this part"
            )
        }))
    }
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
        let here = |is_root, options: &str| Here { is_root, mount_options: Some(options.into()) };
        let refuses = |here: &Here, name| here.refuses(part(name), false).expect("arguments");
        let user = here(false, "rw");
        assert!(refuses(&user, "zero-range").is_some_and(|why| why.contains("sudo")));
        assert_eq!(refuses(&user, "e5"), None);
        let root = here(true, "rw,discard");
        assert!(refuses(&root, "e1-device").is_some_and(|why| why.contains("remount it with nodiscard")));
        assert_eq!(refuses(&root, "e1-removed"), None);
        assert_eq!(refuses(&here(true, "rw,relatime"), "e1-device"), None);
    }
}
