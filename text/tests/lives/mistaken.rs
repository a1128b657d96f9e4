//! Mistakes that are built into a copy of the text log (docs/mistakes.md): the random worlds must
//! catch each, and without them break nothing.

use std::panic::catch_unwind;

use crate::common::turn;
use crate::random::World;
use inkstone_appender::mistake::{Mistake, set};

/// The mistake that is found last is found in the seventh.
const WORLDS: u64 = 100;

#[test]
fn the_worlds_catch_each() {
    let Some(_turn) = turn("mistakes") else { return };
    let finds = |seed: &u64| catch_unwind(|| World::new(*seed).run()).is_err();
    assert_eq!((1..=20).find(finds), None, "without a mistake");
    for mistake in Mistake::ALL {
        set(Some(mistake));
        let found = (1..=WORLDS).find(finds);
        set(None);
        println!("{mistake:?} is caught in world {found:?}");
        assert!(found.is_some(), "{mistake:?} is not caught");
    }
}
