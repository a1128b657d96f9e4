//! `inkstone lab claims`: a few claims at tiny sizes, as an ordinary user could run them.

use crate::support::{directory, json, run, text};

const TINY: [&str; 5] = ["--quiet", "--rounds", "5", "--time", "2s"];

#[test]
fn claims_are_run_and_answered_with_figures_or_reasons() {
    let directory = directory();
    let at = directory.path();
    let only = "overwrite-twice,mmap-fault,direct-not-durable,insert-range-allocates,posix-fallocate-slow,overwrite-no-journal";
    let found =
        run(at, &[&["lab", "claims", "--only", only, "--json", "c.json"][..], &TINY].concat());
    assert!(found.status.success(), "{}", text(&found.stderr));
    let said = text(&found.stdout);
    assert!(said.contains("6 claims:") && said.contains("checked in article 4"), "{said}");
    let result = json(&std::fs::read(at.join("c.json")).expect("a result"));
    let claims = result["claims"].as_array().expect("claims");
    assert_eq!(claims.len(), 6);
    for claim in claims {
        let (low, high) = (&claim["found"]["low"], &claim["found"]["high"]);
        match claim["verdict"].as_str().expect("an answer") {
            "not-run" => {
                assert!(claim["reason"].as_str().is_some_and(|why| !why.is_empty()), "{claim}")
            }
            "confirmed" | "refuted" | "cannot-tell" => {
                assert!(low.as_f64() <= high.as_f64() && low.is_f64(), "{claim}")
            }
            other => panic!("{other}"),
        }
    }
    // Faults are counted without root, on any file system.
    let faults = claims.iter().find(|claim| claim["id"] == "mmap-fault").expect("the claim");
    assert_ne!(faults["verdict"], "not-run", "{faults}");
    // The measurements are in the result too, and nothing else is left.
    assert!(result["tables"][0]["ways"].as_array().is_some_and(|ways| !ways.is_empty()));
    let left: Vec<_> =
        std::fs::read_dir(at).expect("the directory").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["c.json"]);
}

#[test]
fn claims_are_listed_and_an_unknown_one_is_refused() {
    let directory = directory();
    let listed = run(directory.path(), &["lab", "claims", "--list"]);
    let said = text(&listed.stdout);
    assert!(
        listed.status.success() && said.contains("overwrite-twice\n") && said.contains("source: "),
        "{said}"
    );
    let refused = run(directory.path(), &["lab", "claims", "--only", "nonsense"]);
    assert!(!refused.status.success());
    assert!(
        text(&refused.stderr).contains("no claim is called \"nonsense\""),
        "{}",
        text(&refused.stderr)
    );
}
