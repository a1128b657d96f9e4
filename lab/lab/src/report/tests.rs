//! The page as a file: what it contains, what it cannot contain, how large it is.
//! `lab/page/report-test` tests it in a browser.

use serde_json::{Value, json};

use super::*;
use crate::export::to_json;
use crate::table::samples;

fn of(value: &Value) -> String {
    report(&value.to_string()).expect("a page")
}

fn sample() -> Value {
    serde_json::from_str(&to_json(&samples::result()).expect("JSON")).expect("JSON")
}

/// The data of a page, as the browser will parse it.
fn data(page: &str) -> Value {
    let (_, rest) =
        page.split_once(r#"<script type="application/json" id="data">"#).expect("the data");
    let (data, _) = rest.split_once("</script>").expect("its end");
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn the_answer_stands_before_everything_else() {
    let page = of(&sample());
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not in the page"));
    let answer = at("is the fastest durable way: 3.2 times as fast as appending");
    assert!(answer < at("Other processes wrote 12 MiB") && answer < at("id=\"data\""));
    assert!(page.contains("<code>inkstone lab .</code>"), "the command that makes it again");
    assert!(
        page.contains("EOPNOTSUPP; the device has no write zeroes"),
        "why a way was not measured"
    );
}

#[test]
fn nothing_in_the_page_is_loaded_from_anywhere() {
    let page = of(&sample());
    for loads in ["src=", "@import", "url(http", "fetch(", "XMLHttpRequest", "//cdn"] {
        assert!(!page.contains(loads), "{loads}");
    }
    let hrefs = page.match_indices("href=\"").map(|(at, found)| &page[at + found.len()..]);
    assert!(hrefs.into_iter().all(|href| href.starts_with('#') || href.starts_with("data:,")));
    let addresses: Vec<&str> =
        page.match_indices("http").map(|(at, _)| &page[at..at + 30]).collect();
    assert!(
        addresses.iter().all(|address| address.starts_with("http://www.w3.org/2000/svg")
            || address.starts_with("http-equiv")),
        "{addresses:?}"
    );
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn a_name_cannot_become_a_part_of_the_page() {
    const NASTY: &str = "</script><img src=x onerror=alert(1)><!--<script>";
    let mut result = sample();
    result["runs"][0]["place"]["directory"] = NASTY.into();
    result["runs"][0]["place"]["name"] = NASTY.into();
    result["runs"][0]["finding"]["sentence"] = format!("best is `{NASTY}`").into();
    result["command"] = NASTY.into();
    result["warnings"][0]["name"] = format!("\"{NASTY}").into();
    let page = of(&result);
    assert!(!page.contains("<img") && !page.contains("<!--"), "a name became markup");
    let scripts = page.matches("<script").count();
    assert_eq!((scripts, page.matches("</script").count()), (2, 2));
    assert_eq!(data(&page)["runs"][0]["place"]["directory"], NASTY);
}

#[test]
fn a_large_result_still_fits() {
    let mut result = sample();
    let mut run = result["runs"][0].clone();
    // Every latency different: as many buckets as a histogram can have, and slices and commits for
    // each cell.
    let mut commit = crate::histogram::Recorder::new();
    (0..400_000u64).for_each(|n| commit.record(20_000 + n * n % 99_999_989));
    let commit = serde_json::to_value(commit.finish()).expect("JSON");
    let over_time = json!(vec![vec![(123_456_789u64, 234_567u64, 9_876_543u64); 34]; 7]);
    for cell in run["cells"].as_array_mut().expect("cells") {
        if cell["outcome"]["kind"] == "measured" {
            for histogram in ["commit", "write", "sync"] {
                cell["outcome"][histogram] = commit.clone();
            }
            cell["outcome"]["over_time"] = over_time.clone();
        }
    }
    result["runs"] = vec![run; 14].into();
    let bytes = result.to_string().len();
    assert!(bytes > 4 * PAGE_BYTES_MAX, "{bytes}: not large");
    let page = of(&result);
    assert!(page.len() <= PAGE_BYTES_MAX, "{}", page.len());
    assert!(page.contains("the JSON has all"), "it does not say what it left out");
    let cell = &data(&page)["runs"][13]["cells"][0]["outcome"];
    assert!(cell["commit"]["buckets"].as_array().expect("buckets").len() >= 12);
    assert_eq!(cell["commit"]["p99_ns"], commit["p99_ns"], "what a table names is exact");
}

#[test]
fn more_than_a_page_can_hold_is_an_error_that_says_so() {
    let mut result = sample();
    result["warnings"][0]["text"] = "x".repeat(PAGE_BYTES_MAX).into();
    let error = report(&result.to_string()).expect_err("too large").to_string();
    assert!(error.contains("measure fewer cells"), "{error}");
}

#[test]
fn what_is_missing_is_no_reason_not_to_draw() {
    // Removes each field of the result, one after the other, at every depth of its first objects.
    fn without_each(value: &Value, at: &str, check: &mut dyn FnMut(&str)) {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(object) => {
                object.iter().map(|(name, child)| (format!("{at}/{name}"), child)).collect()
            }
            Value::Array(values) => values
                .iter()
                .take(2)
                .enumerate()
                .map(|(n, child)| (format!("{at}/{n}"), child))
                .collect(),
            _ => return,
        };
        for (path, child) in children {
            check(&path);
            without_each(child, &path, check);
        }
    }
    // One way of each kind, and few buckets: it is drawn a thousand times.
    let mut result = sample();
    let cells = result["runs"][0]["cells"].as_array_mut().expect("cells");
    *cells = [0, 7, 9, 10].map(|n: usize| cells[n].clone()).to_vec();
    for histogram in ["commit", "write", "sync"] {
        for cell in cells.iter_mut().filter(|cell| cell["outcome"]["kind"] == "measured") {
            let buckets = cell["outcome"][histogram]["buckets"].as_array_mut().expect("buckets");
            buckets.truncate(3);
        }
    }
    let mut taken = 0;
    without_each(&result, "", &mut |path| {
        let mut result = result.clone();
        let (parent, name) = path.rsplit_once('/').expect("a path");
        if parent.is_empty() && name == "schema_version" || path.contains("/buckets/") {
            return;
        }
        taken += 1;
        match result.pointer_mut(parent).expect("a parent") {
            Value::Object(object) => drop(object.remove(name)),
            other => other[name.parse::<usize>().expect("a place")] = Value::Null,
        }
        let page =
            report(&result.to_string()).unwrap_or_else(|error| panic!("without {path}: {error}"));
        assert!(page.contains("class=\"lead\""), "no answer without {path}");
    });
    assert!(taken > 300, "{taken}");
}

#[test]
fn what_is_no_result_is_refused_with_the_reason() {
    let refused = |text: &str| report(text).expect_err("refused").to_string();
    assert!(refused("{").contains("not JSON"));
    assert!(refused("[1]").contains("a JSON object"));
    assert!(refused(r#"{"a": 1}"#).contains("no schema_version"));
    assert!(refused(r#"{"schema_version": 2}"#).contains("neither runs nor experiments"));
    assert!(refused(r#"{"schema_version": 2, "rows": []}"#).contains("inkstone bench"));
    let newer = refused(r#"{"schema_version": 7, "inkstone_version": "9.1.0", "runs": []}"#);
    assert!(newer.contains("schema_version is 7") && newer.contains("9.1.0"), "{newer}");
}

/// Older results have the range of the rounds there.
#[test]
fn too_few_rounds_have_no_interval_on_the_page() {
    let mut result = sample();
    let few = json!({"speedup": 1.15, "low": 1.15, "high": 1.15, "verdict": "unknown"});
    result["runs"][0]["finding"]["speedup"] = few.clone();
    result["runs"][0]["cells"][7]["outcome"]["relative"] = few;
    let page = of(&result);
    assert!(
        page.contains("too few rounds for an interval") && !page.contains("95%: 1.15"),
        "the tile"
    );
    let drawn = &data(&page)["runs"][0];
    for relative in [&drawn["finding"]["speedup"], &drawn["cells"][7]["outcome"]["relative"]] {
        assert!(relative["low"].is_null() && relative["high"].is_null(), "{relative}");
    }
}
