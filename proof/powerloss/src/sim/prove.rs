//! The loop: each state that a driver gives is opened, wholly read, judged, and used once more.
//!
//! *Owns*: that loop. *May not touch*: where states come from, what is right.

use super::walk::{State, Walk, directories};
use inkstone_subject::{Broken, End, Past as _, SOLE, ShownBy, Subject, When};

/// Proves that what a subject promised holds in every state. `see` looks at each that was opened.
///
/// # Errors
/// The promise that is broken, and where.
pub fn prove<S: Subject>(
    walk: &mut Walk<S>,
    see: &mut dyn FnMut(&State<S>, &ShownBy<S>),
) -> Result<(), Broken> {
    while let Some(state) = walk.next() {
        let state = state.map_err(|broken| broken.at(walk.place()))?;
        let proved = if state.is_again {
            let mut again = walk.again(&state);
            let proved = prove(&mut again, &mut |_, _| {});
            walk.tally.add(&again.tally);
            proved.map_err(|broken| broken.at("again"))
        } else {
            open(&state, see)
        };
        proved.map_err(|broken| {
            broken.at(format_args!("{}: {}{}", walk.place(), state.note, state.when))
        })?;
    }
    Ok(())
}

/// Opens one state, and uses it once more.
fn open<S: Subject>(
    state: &State<S>,
    see: &mut dyn FnMut(&State<S>, &ShownBy<S>),
) -> Result<(), Broken> {
    let State { disk, subject, .. } = state;
    if !state.is_sound {
        save(state)?;
    }
    let mut past = S::Past::clone(&state.past);
    let live = match subject.open(&directories(disk), Some(&past)) {
        Ok(live) => live,
        Err(shown) => return past.check(&shown),
    };
    let shown = subject.read(&live, When::Opened);
    past.check(&shown)?;
    see(state, &shown);
    if state.is_sound {
        // A full disk is no reason for an opening to fail, but it is one for a call.
        disk.change_options(|options| options.capacity_bytes = None);
        let call = subject.plan(&past, &subject.probe());
        past.began(SOLE, &call);
        past.ended(SOLE, &subject.apply(&live, &call), false)?;
    }
    subject.end(live, End::Kill);
    Ok(())
}

/// Saves what can be read of a damaged state, which changes nothing of it.
fn save<S: Subject>(state: &State<S>) -> Result<(), Broken> {
    let State { disk, subject, .. } = state;
    let before = disk.image();
    let Some(shown) = subject.save(&directories(disk)) else { return Ok(()) };
    S::Past::clone(&state.past).check(&shown).map_err(|broken| broken.at("saved"))?;
    let after = disk.image();
    match before.iter().find(|file| !after.contains(file)) {
        Some((path, _)) => {
            Err(Broken::new("saving", format!("{} was changed by saving it", path.display())))
        }
        None => Ok(()),
    }
}
