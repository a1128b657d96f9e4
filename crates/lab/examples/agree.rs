//! Whether several results of one command contradict each other: `agree advice FILE...` or `agree order FILE...`. Used by
//! `.ci/engines-ten` and `.ci/read-ten`. Exits with 1 where they do, and where nothing was said at all.

use std::process::ExitCode;

use inkstone_lab::agree::{advice, order};
use inkstone_lab::result::LabResult;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let mut results = Vec::new();
    for name in arguments {
        let text = std::fs::read_to_string(&name).map_err(|error| format!("read {name}: {error}"))?;
        let result: LabResult = serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
        results.push((name, result));
    }
    let found = match what.as_str() {
        "advice" => advice(&results),
        "order" => order(&results),
        _ => return Err("usage: agree advice|order FILE...".into()),
    };
    println!("{} results, {} answers, {} reversed", results.len(), found.said, found.reversed.len());
    for line in &found.reversed {
        println!("  {line}");
    }
    let agree = found.said > 0 && found.reversed.is_empty();
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
