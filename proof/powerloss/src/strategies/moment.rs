//! At which moments the power is cut in a recording, and which of the unflushed sectors are there.
//!
//! *Owns*: choosing the states of one run, and their text form. *May not touch*: making them
//! (`kernel::states`), checking them.
//!
//! The plainest power loss comes first: right after an acknowledgement, and nothing unflushed is
//! there. The newest acknowledgements show most, since the older ones may have been written back
//! meanwhile. Then any part of the unflushed sectors right after an acknowledgement, and any moment
//! between.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use crate::kernel::image::Image;
use crate::kernel::recording::{Entry, Recording};
use crate::kernel::states::{Kept, Player, Subset, choose};

/// A moment and what is there then: `ack:3+5/torn:7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Moment {
    /// This many steps were acknowledged.
    pub acked: usize,
    /// The cut is this many entries later.
    pub after: usize,
    /// Which unflushed sectors are there.
    pub subset: Subset,
}

impl Moment {
    /// Right at an acknowledgement, and nothing unflushed is there.
    pub fn is_plainest(&self) -> bool {
        self.after == 0 && self.subset == Subset::None
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ack:{}", self.acked)?;
        if self.after > 0 {
            write!(f, "+{}", self.after)?;
        }
        write!(f, "/{}", self.subset)
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a state; write ack:3/none or ack:3+5/torn:7");
        let (place, subset) =
            text.strip_prefix("ack:").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
        let (acked, after) = place.split_once('+').unwrap_or((place, "0"));
        let number = |word: &str| word.parse().map_err(|_| wrong());
        Ok(Self { acked: number(acked)?, after: number(after)?, subset: subset.parse()? })
    }
}

/// A state to check.
#[derive(Debug)]
pub struct State {
    /// Its text form.
    pub moment: Moment,
    /// What is on the medium.
    pub image: Image,
}

/// The state of this text form.
///
/// # Errors
/// There is no such moment in the recording.
pub fn state_at(
    recording: &Recording,
    places: &[usize],
    len_bytes: u64,
    moment: Moment,
) -> Result<State, String> {
    let place = places.get(moment.acked).map(|place| place + moment.after);
    let place = place.filter(|place| *place <= recording.entries.len());
    let place = place.ok_or_else(|| format!("{moment}: the recording ends before it"))?;
    let mut player = Player::new(recording, Image::new(len_bytes));
    player.play(place);
    let cut = player.cut();
    let kept = cut.kept(moment.subset);
    Ok(State { moment, image: cut.state(&kept) })
}

/// Passes at most `most` states of a recording to `see`, one after the other, until it returns
/// `false`.
pub fn each_state(
    recording: &Recording,
    places: &[usize],
    len_bytes: u64,
    most: usize,
    seed: u64,
    mut see: impl FnMut(State) -> bool,
) {
    let mut rng = fastrand::Rng::with_seed(seed);
    // At most half are the plainest ones, beginning with the newest acknowledgements.
    let plainest = places.len().min(most.div_ceil(2));
    let newest = places.len() - plainest..places.len();
    let mut wanted: Vec<_> = newest.map(|acked| (acked, 0, Some(Subset::None))).collect();
    let between = unflushed_moments(recording, places);
    let at: Vec<_> = between.iter().copied().filter(|(_, after)| *after == 0).collect();
    for number in plainest..most {
        // Every third one at an acknowledgement itself, if anything is unflushed at one.
        let from = if number % 3 == 0 && !at.is_empty() { &at } else { &between };
        if let Some(&(acked, after)) = rng.choice(from) {
            wanted.push((acked, after, None));
        }
    }
    wanted.sort_by_key(|(acked, after, _)| (*acked, *after));
    let mut player = Player::new(recording, Image::new(len_bytes));
    let mut seen: HashSet<(usize, Kept)> = HashSet::new();
    for (acked, after, subset) in wanted {
        player.play(places[acked] + after);
        let cut = player.cut();
        let chosen = match subset {
            Some(subset) => vec![(subset, cut.kept(subset))],
            // More than one, because some may have been checked already.
            None => choose(&cut.units, 16, rng.u64(..)),
        };
        let fresh = chosen.into_iter().find(|(_, kept)| seen.insert((cut.entry, kept.clone())));
        let Some((subset, kept)) = fresh else { continue };
        let state = State { moment: Moment { acked, after, subset }, image: cut.state(&kept) };
        if !see(state) {
            return;
        }
    }
}

/// Where something is unflushed: elsewhere there is only one state.
fn unflushed_moments(recording: &Recording, places: &[usize]) -> Vec<(usize, usize)> {
    let mut moments = Vec::new();
    let mut unflushed = false;
    for at in 0..=recording.entries.len() {
        match at.checked_sub(1).map(|before| &recording.entries[before]) {
            Some(Entry::Flush) => unflushed = false,
            Some(Entry::Write { .. } | Entry::Discard { .. }) => unflushed = true,
            Some(Entry::Mark(_)) | None => {}
        }
        let acked = places.partition_point(|place| *place <= at);
        if let (true, Some(acked)) = (unflushed, acked.checked_sub(1)) {
            moments.push((acked, at - places[acked]));
        }
    }
    moments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        let write = |sector: u64| Entry::Write { sector, bytes: vec![7; 1024].into() };
        let mark = |text: &str| Entry::Mark(text.into());
        let entries = vec![
            mark("ready"),
            write(0),
            mark("ack 1"),
            write(2),
            Entry::Flush,
            mark("ack 2"),
            write(4),
        ];
        Recording { entries }
    }

    #[test]
    fn the_plainest_come_and_no_state_twice() {
        let recording = recording();
        let places = [1, 3, 6];
        let mut moments = Vec::new();
        each_state(&recording, &places, 4096, 40, 1, |state| {
            let again = state_at(&recording, &places, 4096, state.moment).expect("it is there");
            let bytes = |image: &Image| {
                let mut bytes = vec![0; 4096];
                image.read(0, &mut bytes);
                bytes
            };
            assert_eq!(bytes(&again.image), bytes(&state.image), "{}", state.moment);
            moments.push(state.moment);
            true
        });
        let plainest: Vec<_> =
            moments.iter().filter(|moment| moment.is_plainest()).map(|m| m.acked).collect();
        assert_eq!(plainest, [0, 1, 2]);
        assert!(moments.iter().any(|moment| moment.after > 0) && moments.len() > 6, "{moments:?}");
        let distinct: HashSet<_> = moments.iter().map(|m| m.to_string()).collect();
        assert_eq!(distinct.len(), moments.len());
        let far = Moment { acked: 2, after: 2, subset: Subset::None };
        assert!(
            state_at(&recording, &places, 4096, far).expect_err("too far").contains("ack:2+2/none")
        );
    }

    #[test]
    fn words_lead_back() {
        for text in ["ack:3/none", "ack:0+5/torn:7"] {
            assert_eq!(text.parse::<Moment>().expect("a state").to_string(), text);
        }
        for text in ["3/none", "ack:3", "ack:x/none", "ack:3/some"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
