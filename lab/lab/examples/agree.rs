//! Whether several results of one command contradict each other: `agree advice FILE...` or `agree
//! order FILE...`. Used by `.ci/engines-ten` and `.ci/read-ten`. Exits with 1 if they do, and if
//! there is no statement at all; for advice, also if a half (`rest-1.json`, `rest-2.json`, ...)
//! gives none: then the halves were not compared.

use std::collections::BTreeMap;
use std::process::ExitCode;

use inkstone_lab::agree::{advice, order};
use inkstone_lab::result::LabResult;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let mut results = Vec::new();
    for name in arguments {
        let text =
            std::fs::read_to_string(&name).map_err(|error| format!("read {name}: {error}"))?;
        let result: LabResult =
            serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
        results.push((name, result));
    }
    let found = match what.as_str() {
        "advice" => advice(&results),
        "order" => order(&results),
        _ => return Err("usage: agree advice|order FILE...".into()),
    };
    println!(
        "{} results, {} answers, {} reversed",
        results.len(),
        found.said,
        found.reversed.len()
    );
    for line in &found.reversed {
        println!("  {line}");
    }
    let mut halves: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in &results {
        let file = name.rsplit('/').next().unwrap_or(name);
        let half = file.rsplit_once('-').map_or("all", |(half, _)| half);
        *halves.entry(half).or_default() += found.said_by.get(name).copied().unwrap_or_default();
    }
    for (half, said) in &halves {
        println!("  {half}: {said} said");
    }
    let is_silent = what == "advice" && halves.values().any(|&said| said == 0);
    let agree = found.said > 0 && found.reversed.is_empty() && !is_silent;
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
