//! A result as JSON (everything) and as CSV (a row for each way of writing).
//!
//! *Owns*: which fields of the JSON are columns. *May not touch*: files; the command writes them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::result::LabResult;
use crate::stats;

/// The whole result on one line: raw histograms would fill thousands. Reading it back with serde
/// gives the same result.
///
/// # Errors
/// When serde cannot write it; with the types of `result` that does not happen.
pub fn to_json(result: &LabResult) -> serde_json::Result<String> {
    serde_json::to_string(result).map(|json| json + "\n")
}

/// Reads what [`to_json`] wrote. Everything that reads a result goes through here: the code of
/// serde for all its types is then made once, not once for each crate and kind of input.
///
/// # Errors
/// It is not JSON, or not a result.
pub fn from_json(json: &str) -> serde_json::Result<LabResult> {
    serde_json::from_str(json)
}

/// A header and one row for each way of writing, with CRLF and quotes as in RFC 4180. A column is a
/// single value of the JSON, called by its path (`place.device`, `outcome.commit.p99_ns`,
/// `outcome.bill.layers.0.flushes`); a value that was not measured is an empty field.
///
/// # Errors
/// As [`to_json`].
pub fn to_csv(result: &LabResult) -> serde_json::Result<String> {
    let mut rows: Vec<Map<String, Value>> = Vec::new();
    for run in &result.runs {
        let place = serde_json::to_value(&run.place)?;
        for cell in &run.cells {
            let mut row = Map::new();
            row.insert("run".into(), json!(run.name));
            flatten("place", &place, &mut row);
            flatten("", &serde_json::to_value(cell)?, &mut row);
            let per_commit_ns = cell.outcome.measured().and_then(stats::per_commit_ns);
            row.insert("per_commit_ns".into(), json!(per_commit_ns));
            rows.push(row);
        }
    }
    let columns: BTreeSet<&String> = rows.iter().flat_map(Map::keys).collect();
    // What identifies a row comes first.
    let first = ["run", "place.name", "name", "per_commit_ns"];
    let rest = columns.iter().map(|name| name.as_str()).filter(|name| !first.contains(name));
    let columns: Vec<&str> = first.into_iter().chain(rest).collect();
    let mut out = line(columns.iter().map(|name| field(&json!(name))));
    for row in &rows {
        out += &line(columns.iter().map(|name| row.get(*name).map(field).unwrap_or_default()));
    }
    Ok(out)
}

/// Adds the single values below this one. A list of single values or of lists is no column.
fn flatten(path: &str, value: &Value, row: &mut Map<String, Value>) {
    let below = |name: &str| if path.is_empty() { name.into() } else { format!("{path}.{name}") };
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| flatten(&below(name), value, row));
        }
        Value::Array(values) if path.ends_with(".layers") => {
            let numbered = values.iter().enumerate();
            numbered.for_each(|(number, value)| flatten(&below(&number.to_string()), value, row));
        }
        Value::Array(_) => {}
        single => drop(row.insert(path.into(), single.clone())),
    }
}

fn line(fields: impl Iterator<Item = String>) -> String {
    fields.collect::<Vec<_>>().join(",") + "\r\n"
}

fn field(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.contains(['"', ',', '\r', '\n']) || text.trim() != text {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::samples;

    #[test]
    fn json_is_read_back_as_it_was() {
        let text = to_json(&samples::result()).expect("JSON");
        assert_eq!(to_json(&from_json(&text).expect("a result")).expect("JSON"), text);
        assert!(from_json("{}").is_err());
    }

    #[test]
    fn a_row_has_as_many_fields_as_the_header_and_odd_text_stays_one_field() {
        let mut result = samples::result();
        result.runs[0].place.name = "a \"b\", c".into();
        let csv = to_csv(&result).expect("CSV");
        let mut lines = csv.split("\r\n");
        let header = lines.next().expect("a header");
        assert!(header.starts_with("run,place.name,name,per_commit_ns,"), "{header}");
        for name in ["outcome.commit.p99_ns", "outcome.bill.layers.0.flushes", "what.durability"] {
            assert!(header.split(',').any(|column| column == name), "{name}: {header}");
        }
        let cells: usize = result.runs.iter().map(|run| run.cells.len()).sum();
        assert_eq!(csv.matches("\r\n").count(), 1 + cells);
        assert!(csv.contains(",\"a \"\"b\"\", c\","));
    }
}
