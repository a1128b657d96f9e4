//! `lab write --precondition`: in several states of the device. Needs root, as only a file system
//! of its own is filled or discarded.

#[path = "support/runs.rs"]
mod runs;

use std::io::Write;
use std::sync::atomic::AtomicBool;

use inkstone_io::{Durability, Reuse, is_root};
use inkstone_lab::command::{Context, MeasureOptions, measure};
use inkstone_lab::image::{IMAGE_BYTES_MIN, Image, ImageKind, LoopMode};
use inkstone_lab::precondition::Precondition;
use inkstone_lab::progress::Progress;
use inkstone_lab::result::Outcome;
use runs::{plan, small, strategy};

/// On a file system of its own, so that no other free space is filled or discarded.
#[test]
fn each_state_of_the_device_has_its_rounds_and_what_differs_is_asked() {
    const TEST: &str = "each_state_of_the_device_has_its_rounds_and_what_differs_is_asked";
    if !is_root() {
        let said = format!(
            "\nNOT RUN: {TEST}: it needs root for a file system of its own, and for FITRIM\n"
        );
        // Bypasses the test harness, which hides the output of passing tests.
        let _ = std::io::stderr().write_all(said.as_bytes());
        return;
    }
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let image = Image::make(place.path(), ImageKind::Ext4, LoopMode::Direct, IMAGE_BYTES_MIN)
        .expect("an image");
    let cells = vec![
        small(strategy(Reuse::New, Durability::Fsync)),
        small(strategy(Reuse::Reuse, Durability::Fdatasync)),
    ];
    let options = MeasureOptions {
        preconditions: vec![Precondition::None, Precondition::Fill, Precondition::Trim],
        fill_bytes: Some(8 << 20),
        ..MeasureOptions::of(Some(image.path().into()), plan(cells.clone()), false)
    };
    let stop = AtomicBool::new(false);
    let mut progress = Progress::silent();
    let mut context = Context { stop: &stop, progress: &mut progress, command: "test".into() };
    let result = measure(&options, &mut context).expect("a result");
    let states: Vec<&str> = result
        .runs
        .iter()
        .filter_map(|run| Some(run.precondition.as_ref()?.kind.as_str()))
        .collect();
    assert_eq!(states, ["none", "fill", "trim"]);
    for run in &result.runs {
        for cell in &run.cells {
            let rounds = &cell.outcome.measured().unwrap_or_else(|| panic!("{cell:?}")).rounds;
            assert_eq!(rounds.len(), 5, "{} {}", run.name, cell.name);
        }
    }
    let bytes = |index: usize| &result.runs[index].precondition.as_ref().expect("a state").bytes;
    assert_eq!((bytes(0).len(), bytes(1), bytes(2).len()), (0, &vec![8 << 20; 5], 5));
    assert_eq!(result.asked.len(), 4, "each cell in each other state: {:?}", result.asked);
    // A state that is not possible is a row with its reason.
    let full = MeasureOptions {
        fill_bytes: Some(IMAGE_BYTES_MIN),
        preconditions: vec![Precondition::Fill],
        ..options
    };
    let refused = measure(&full, &mut context).expect("a result");
    for cell in &refused.runs[0].cells {
        let Outcome::Invalid { reason } = &cell.outcome else { panic!("{cell:?}") };
        assert!(reason.contains("no room to fill"), "{reason}");
    }
    assert!(refused.asked.is_empty());
    image.remove().expect("removed");
}
