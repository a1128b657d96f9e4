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
    serde_json::from_str(rest.split_once("</script>").expect("its end").0).expect("JSON")
}

#[test]
fn the_answer_stands_before_everything_else() {
    let page = of(&sample());
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not in the page"));
    let answer = at("is the fastest durable way: 3.2 times as fast as appending");
    assert!(answer < at("Other processes wrote 12 MiB") && answer < at("id=\"data\""));
    at("<code>inkstone lab .</code>");
    at("EOPNOTSUPP; the device has no write zeroes");
}

#[test]
fn nothing_in_the_page_is_loaded_from_anywhere() {
    let page = of(&sample());
    for loads in ["src=", "@import", "url(http", "fetch(", "XMLHttpRequest", "//cdn"] {
        assert!(!page.contains(loads), "{loads}");
    }
    let hrefs = page.match_indices("href=\"").map(|(at, found)| &page[at + found.len()..]);
    assert!(hrefs.into_iter().all(|href| href.starts_with('#') || href.starts_with("data:,")));
    for (at, _) in page.match_indices("http") {
        let known = ["http://www.w3.org/2000/svg", "http-equiv"];
        assert!(known.iter().any(|known| page[at..].starts_with(known)), "{}", &page[at..at + 30]);
    }
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
    result["warnings"][0]["text"] = format!("\"{NASTY}").into();
    let page = of(&result);
    assert!(!page.contains("<img") && !page.contains("<!--"), "a name became markup");
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
    assert_eq!(data(&page)["runs"][0]["place"]["directory"], NASTY);
}

#[test]
fn a_large_result_still_fits() {
    let mut result = sample();
    let mut run = result["runs"][0].clone();
    // Every latency different: as many buckets as a histogram can have, and slices and commits for
    // each way.
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
    result["warnings"][0]["text"] = "x".repeat(PAGE_BYTES_MAX).into();
    let error = report(&result.to_string()).expect_err("too large").to_string();
    assert!(error.contains("measure fewer ways"), "{error}");
}

/// Calls `check` with each path of the value, at every depth of its first objects.
fn each_path(value: &Value, at: &str, check: &mut dyn FnMut(&str)) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(object) => {
            object.iter().map(|(name, child)| (format!("{at}/{name}"), child)).collect()
        }
        Value::Array(values) => {
            (0..2).zip(values).map(|(n, child)| (format!("{at}/{n}"), child)).collect()
        }
        _ => return,
    };
    for (path, child) in children {
        check(&path);
        each_path(child, &path, check);
    }
}

#[test]
fn what_is_missing_is_no_reason_not_to_draw() {
    // One way of each kind, and few buckets: it is drawn a thousand times.
    let mut result = sample();
    let cells = result["runs"][0]["cells"].as_array_mut().expect("cells");
    *cells = [0, 7, 9, 10].map(|n: usize| cells[n].clone()).to_vec();
    for cell in cells.iter_mut().filter(|cell| cell["outcome"]["kind"] == "measured") {
        cell["outcome"]["commit"]["buckets"].as_array_mut().expect("buckets").truncate(3);
    }
    let mut taken = 0;
    each_path(&result, "", &mut |path| {
        let (parent, name) = path.rsplit_once('/').expect("a path");
        if path == "/schema_version" || path.contains("/buckets/") {
            return;
        }
        taken += 1;
        let mut result = result.clone();
        match result.pointer_mut(parent).expect("a parent") {
            Value::Object(object) => drop(object.remove(name)),
            other => other[name.parse::<usize>().expect("a place")] = Value::Null,
        }
        assert!(of(&result).contains("class=\"lead\""), "no answer without {path}");
    });
    assert!(taken > 300, "{taken}");
}

#[test]
fn what_is_no_result_is_refused_with_the_reason() {
    let refused = |text: &str| report(text).expect_err("refused").to_string();
    assert!(refused("{").contains("not JSON"));
    assert!(refused("[1]").contains("a JSON object"));
    assert!(refused(r#"{"a": 1}"#).contains("no schema_version"));
    let of_version = |more: Value| {
        let mut result = json!({"schema_version": SCHEMA_VERSION});
        result.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        refused(&result.to_string())
    };
    assert!(of_version(json!({})).contains("neither runs nor experiments"));
    assert!(of_version(json!({"rows": []})).contains("inkstone bench"));
    let newer = json!({"schema_version": 77, "inkstone_version": "9.1.0", "runs": []});
    let newer = of_version(newer);
    assert!(newer.contains("schema_version is 77") && newer.contains("9.1.0"), "{newer}");
}
