//! A result as CSV: a row for each way.
//!
//! *Owns*: which fields of the JSON are columns. *May not touch*: files; the command writes them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::result::LabResult;

/// A header and one row for each way, with CRLF and quotes as in RFC 4180. A column is a single
/// value of the JSON, called by its path (`place.device`, `latency.p99_ns`,
/// `bill.layers.0.requests.flush.requests`, `figures.write p50`); a value that was not measured is
/// an empty field.
///
/// # Errors
/// When serde cannot write it; with the types of `result` that does not happen.
pub fn to_csv(result: &LabResult) -> serde_json::Result<String> {
    let mut rows: Vec<Map<String, Value>> = Vec::new();
    for table in &result.tables {
        let place = serde_json::to_value(&table.place)?;
        for way in &table.ways {
            let mut row = Map::new();
            row.insert("table".into(), json!(table.name));
            flatten("place", &place, &mut row);
            flatten("", &serde_json::to_value(way)?, &mut row);
            for figure in &way.figures {
                row.insert(format!("figures.{}", figure.name), json!(figure.value));
            }
            row.insert("unit".into(), json!(table.unit.name()));
            row.insert("median".into(), json!(table.median(way)));
            rows.push(row);
        }
    }
    let columns: BTreeSet<&String> = rows.iter().flat_map(Map::keys).collect();
    // What identifies a row comes first.
    let first = ["table", "place.name", "name", "unit", "median"];
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
        let text = samples::result().to_json().expect("JSON");
        let again = LabResult::from_json(&text).expect("a result");
        assert_eq!(again.to_json().expect("JSON"), text);
        let said = |json: &str| LabResult::from_json(json).expect_err("refused");
        assert!(said("{}").contains("no schema_version") && said("[1]").contains("not a result"));
        assert!(said("{").contains("not JSON"));
        assert!(said("{\"schema_version\": 2}").contains("schema_version is 2"));
    }

    #[test]
    fn a_row_has_as_many_fields_as_the_header_and_odd_text_stays_one_field() {
        let mut result = samples::result();
        result.tables[0].place.name = "a \"b\", c".into();
        let csv = to_csv(&result).expect("CSV");
        let header = csv.split("\r\n").next().expect("a header");
        assert!(header.starts_with("table,place.name,name,unit,median,"), "{header}");
        for name in ["latency.p99_ns", "bill.layers.0.requests.flush.requests", "file_bytes"] {
            assert!(header.split(',').any(|column| column == name), "{name}: {header}");
        }
        let ways: usize = result.tables.iter().map(|table| table.ways.len()).sum();
        assert_eq!(csv.matches("\r\n").count(), 1 + ways);
        assert!(csv.contains(",\"a \"\"b\"\", c\","));
    }
}
