//! A place in a few words: file system, device, what is below.
//!
//! *Owns*: which facts are named. *May not touch*: finding them out.

use super::style::TableStyle;
use super::text::{Tint, paragraph};
use crate::result::Place;

/// The place in one line, and a line for each place below it.
pub(super) fn place_lines(place: &Place, style: &TableStyle, out: &mut String) {
    let mut text = place_text(place);
    // A directory given by its path identifies the place; `.` does not.
    let known = place.name.as_str();
    if !place.directory.is_empty() && place.directory != known {
        text.push_str(&format!(" in {}", place.directory));
    }
    let lead = if known.is_empty() { String::new() } else { format!("{known}: ") };
    paragraph(out, style, "  ", &format!("{lead}{text}"), Tint::Plain);
    let mut above = place;
    while let Some(host) = &above.host {
        let device = above.device.as_deref().unwrap_or("it");
        let backing =
            above.loop_backing.as_deref().map(|file| format!("{file}; ")).unwrap_or_default();
        paragraph(
            out,
            style,
            "  ",
            &format!("below {device}: {backing}{}", place_text(host)),
            Tint::Plain,
        );
        above = host;
    }
    if let (None, Some(backing)) = (&above.host, &above.loop_backing) {
        let device = above.device.as_deref().unwrap_or("it");
        paragraph(out, style, "  ", &format!("below {device}: {backing}"), Tint::Plain);
    }
}

/// File system, device, and the facts that decide about a commit's cost, in short.
fn place_text(place: &Place) -> String {
    let file_system =
        if place.file_system.is_empty() { "unknown file system" } else { &place.file_system };
    let mut text = file_system.to_owned();
    if let Some(device) = &place.device {
        text.push_str(&format!(" on {device}"));
    }
    let mut facts = Vec::new();
    let model = place.model.as_deref().map(str::trim).filter(|model| !model.is_empty());
    facts.extend(model.map(str::to_owned));
    facts.extend(place.write_cache.as_ref().map(|cache| format!("cache {cache}")));
    facts.extend(place.fua.map(|fua| if fua { "FUA" } else { "no FUA" }.to_owned()));
    facts.extend(
        place.journal.map(|journal| if journal { "journal" } else { "no journal" }.to_owned()),
    );
    if matches!(place.copy_on_write.as_str(), "always" | "shared extents only") {
        facts.push(match place.copy_on_write.as_str() {
            "always" => "copy on write".into(),
            _ => "copy on write of shared extents".into(),
        });
    }
    facts.extend(
        place.direct_align_bytes.filter(|align| *align == 0).map(|_| "no O_DIRECT".to_owned()),
    );
    let scheduler = place.scheduler.as_ref().filter(|scheduler| scheduler.as_str() != "none");
    facts.extend(scheduler.map(|scheduler| format!("scheduler {scheduler}")));
    if !place.mount_options.is_empty() {
        facts.push(shortened(&place.mount_options));
    }
    if facts.is_empty() { text } else { format!("{text} ({})", facts.join(", ")) }
}

/// Mount options, without the less important tail.
fn shortened(options: &str) -> String {
    const KEPT: usize = 5;
    let all: Vec<&str> = options.split(',').collect();
    match all.len() {
        0..=KEPT => options.to_owned(),
        many => format!("{},+{}", all[..KEPT].join(","), many - KEPT),
    }
}
