//! The model catches these mutations, and the same seeds are sound without them. The explorer
//! (`proof/explore`) and `forged.rs` catch others.
//!
//! *Owns*: the list of mutations, and counting states. *May not touch*: the crate's insides.

#![cfg(inkstone_mistakes)]
#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "support/history.rs"]
mod history;
#[path = "support/model.rs"]
mod model;

use std::panic::catch_unwind;

use history::{Tally, explore};
use inkstone_streams::mistake::{Mistake, set};

/// Explores seeds until a promise is seen broken; says how, and after how many states. A check of
/// the crate that ends the program catches a mistake, too.
fn caught(mistake: Mistake) {
    let mut states = 0;
    for seed in 0..400 {
        set(Some(mistake));
        let made = catch_unwind(|| {
            let mut tally = Tally::default();
            (explore(seed, 150, &mut tally), tally.states)
        });
        set(None);
        let why = match made {
            Ok((found, looked_at)) => {
                states += looked_at;
                let Err(why) = found else { continue };
                why
            }
            Err(_) => "a panic".to_string(),
        };
        println!("{mistake}: {states} states: {}", why.lines().next().unwrap_or_default());
        explore(seed, 150, &mut Tally::default()).expect("the same history without the mistake");
        return;
    }
    panic!("{mistake} was not caught in {states} states");
}

#[test]
fn a_front_that_goes_before_the_move_is_durable() {
    caught(Mistake::SourceRemovedEarly);
}

#[test]
fn a_page_of_a_directory_that_leaves_a_record_out() {
    caught(Mistake::DirectoryLeavesOut);
}

#[test]
fn a_note_that_is_not_in_its_batch() {
    caught(Mistake::NoteApart);
}

#[test]
fn a_removed_stream_that_comes_back() {
    caught(Mistake::RemovedComesBack);
}

#[test]
fn a_table_that_forgets_a_stream() {
    caught(Mistake::TableForgets);
}

#[test]
fn a_table_that_is_believed_before_it_is_complete() {
    caught(Mistake::TableBelievedEarly);
}

#[test]
fn a_front_that_goes_although_an_opening_begins_there() {
    caught(Mistake::FrontBehindOpening);
}
