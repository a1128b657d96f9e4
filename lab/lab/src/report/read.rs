//! Which files are results that can be drawn. *Owns*: that decision. *May not touch*: how they are
//! drawn.

use serde_json::Value;

use super::ReportError;
use crate::result::SCHEMA_VERSION;

/// A result has at least one of these fields.
const PARTS: [&str; 4] = ["runs", "experiments", "fallocate", "aa"];

/// Whether `value` is a result of the lab, of the version that this program knows.
pub(super) fn check(value: &Value) -> Result<(), ReportError> {
    let not = |what: &str| Err(ReportError::NotAResult(what.into()));
    let Some(object) = value.as_object() else {
        return not("a result is a JSON object, as `inkstone lab --json FILE` writes it");
    };
    if object.contains_key("rows") && !object.contains_key("runs") {
        return not(
            "it seems to be from `inkstone bench`, which has no report; `inkstone lab --json FILE` writes \
             results that have one",
        );
    }
    let Some(version) = object.get("schema_version") else {
        return not("it has no schema_version");
    };
    if version.as_u64() != Some(u64::from(SCHEMA_VERSION)) {
        let of = object
            .get("inkstone_version")
            .and_then(Value::as_str)
            .unwrap_or("a version that it does not name");
        return Err(ReportError::Version {
            found: version.to_string(),
            known: SCHEMA_VERSION,
            version: of.into(),
        });
    }
    if !PARTS.iter().any(|part| object.contains_key(*part)) {
        return not("it has neither runs nor experiments");
    }
    Ok(())
}

/// Removes ranges: results from before 2026-11 with too few rounds have the range of the rounds in
/// place of an interval.
pub(super) fn forget_ranges(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if object.contains_key("speedup")
                && object.get("verdict").and_then(Value::as_str) == Some("unknown")
            {
                for end in ["low", "high"] {
                    object.insert(end.into(), Value::Null);
                }
            }
            object.values_mut().for_each(forget_ranges);
        }
        Value::Array(values) => values.iter_mut().for_each(forget_ranges),
        _ => {}
    }
}
