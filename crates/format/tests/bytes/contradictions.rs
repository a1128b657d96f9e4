//! Good checksums over what cannot be: named, refused, and never shown.
//!
//! *Owns*: that each check of the grammar is made. *May not touch*: how the cases are made
//! (`support/contradictions.rs`).

use crate::support::contradictions::contradictions;
use crate::support::survey_of;
use inkstone_format::Verdict;

#[test]
fn each_contradiction_is_named_and_refused() {
    for case in contradictions() {
        let (found, shown) = survey_of(&case.files);
        let segment = found.segments.last().unwrap();
        assert_eq!(segment.stop.fault, case.fault, "{}: {:?}", case.what, segment.stop);
        assert!(matches!(found.verdict, Verdict::Corrupt(_)), "{}: {found:?}", case.what);
        assert!(["C1", "C2", "C3"].contains(&found.row), "{}: {}", case.what, found.row);
        assert_eq!(shown.len(), 1, "{}", case.what);
    }
}
