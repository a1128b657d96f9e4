//! The page as a file: what it contains, what it cannot contain, how large it is.
//! `lab/page/report-test` tests it in a browser.

use serde_json::Value;

use super::*;
use crate::table::samples;

fn of(result: &LabResult) -> String {
    report(&result.to_json().expect("JSON")).expect("a page")
}

/// The data of a page, as the browser will parse it.
fn data(page: &str) -> Value {
    let (_, rest) =
        page.split_once(r#"<script type="application/json" id="data">"#).expect("the data");
    serde_json::from_str(rest.split_once("</script>").expect("its end").0).expect("JSON")
}

#[test]
fn the_answer_stands_before_everything_else() {
    let page = of(&samples::result());
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not in the page"));
    let answer = at("is the fastest durable way: 3.2 times as fast as appending");
    assert!(answer < at("Other processes wrote 12 MiB") && answer < at("id=\"data\""));
    // The tables are the command's.
    at("by jbd2/loop0-8: ");
    at("measured by: inkstone lab .");
    at("EOPNOTSUPP; the device has no write zeroes");
}

#[test]
fn nothing_in_the_page_is_loaded_from_anywhere() {
    let page = of(&samples::result());
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
    let mut result = samples::result();
    result.tables[0].place.directory = NASTY.into();
    result.tables[0].place.name = NASTY.into();
    result.tables[0].finding.as_mut().expect("one").sentence = format!("best is `{NASTY}`");
    result.command = NASTY.into();
    result.warnings[0].text = format!("\"{NASTY}");
    let page = of(&result);
    assert!(!page.contains("<img") && !page.contains("<!--"), "a name became markup");
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
    assert_eq!(data(&page)["tables"][0]["place"]["directory"], NASTY);
}
