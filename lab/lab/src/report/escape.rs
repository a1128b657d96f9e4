//! Text from a result as part of a page.
//!
//! *Owns*: what keeps it from being more than text. *May not touch*: what the page has. Pure
//! functions.

/// Text that is only text in HTML, also between quotes.
pub(crate) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for part in text.split_inclusive(['<', '>', '&', '"', '\'']) {
        match part.char_indices().next_back() {
            Some((at, mark @ ('<' | '>' | '&' | '"' | '\''))) => {
                html.push_str(&part[..at]);
                html.push_str(&format!("&#{};", u32::from(mark)));
            }
            _ => html.push_str(part),
        }
    }
    html
}

/// JSON that cannot end its script element: it contains no `<`, so neither `</script>` nor `<!--`.
pub(super) fn island(json: &str) -> String {
    json.replace('<', "\\u003c")
}
