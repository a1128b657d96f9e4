//! Every combination of facts against the tables.
//!
//! *Owns*: the proof that the tables are complete and unambiguous. *May not touch*: how facts are
//! gathered.

use super::*;

const BOTH: [bool; 2] = [false, true];

fn every_combination(mut visit: impl FnMut(Facts)) {
    for bits in 0..1u32 << 8 {
        let bit = |index: u32| bits >> index & 1 == 1;
        for found in [Found::SegmentEnd, Found::Zeros, Found::Remains, Found::Garbage, Found::Sound]
        {
            for place in [Place::Between, Place::Inside] {
                for epoch in [EpochIs::Lower, EpochIs::Equal, EpochIs::Higher] {
                    visit(Facts {
                        below: bit(0),
                        later: bit(1),
                        short: bit(2),
                        sealed: bit(3),
                        length: bit(4),
                        lsn: bit(5),
                        grammar: bit(6),
                        body: bit(7),
                        found,
                        place,
                        epoch,
                    });
                }
            }
        }
    }
}

#[test]
fn exactly_one_row_fits_each_combination_of_facts() {
    let mut count = 0;
    let mut used = [0u32; 32];
    every_combination(|facts| {
        let fits: alloc::vec::Vec<usize> =
            (0..ROWS.len()).filter(|row| ROWS[*row].fits(&facts)).collect();
        assert_eq!(
            fits.len(),
            1,
            "{facts:?} is fit by {:?}",
            fits.iter().map(|row| ROWS[*row].name)
        );
        assert_eq!(judge(&facts).name, ROWS[fits[0]].name);
        used[fits[0]] += 1;
        count += 1;
    });
    assert_eq!(count, 5 * 2 * 3 * 256);
    assert!(used[..ROWS.len()].iter().all(|used| *used > 0), "a row that fits nothing");
}

#[test]
fn below_a_promise_everything_is_corrupt_and_only_contradictions_are_above() {
    every_combination(|facts| {
        let verdict = judge(&facts).verdict;
        let corrupt = matches!(verdict, Verdict::Corrupt(_));
        let sound = facts.found == Found::Sound && facts.epoch != EpochIs::Lower;
        // A sound header of this epoch with anything wrong but its payload: no crash writes that.
        let contradiction = sound && (!(facts.length && facts.lsn && facts.grammar) || facts.body);
        assert_eq!(
            corrupt,
            facts.below || facts.short || facts.sealed || contradiction,
            "{facts:?}"
        );
    });
}

#[test]
fn one_row_fits_each_combination_of_header_facts() {
    let states = [
        HeaderState::Zero,
        HeaderState::Older,
        HeaderState::Newer,
        HeaderState::Foreign,
        HeaderState::Unknown,
        HeaderState::Short,
        HeaderState::Damaged,
    ];
    for state in states {
        for named in BOTH {
            for groups in BOTH {
                for dirty in BOTH {
                    let facts = HeaderFacts { state, named, groups, dirty };
                    assert_eq!(
                        HEADER_ROWS.iter().filter(|row| row.fits(&facts)).count(),
                        1,
                        "{facts:?}"
                    );
                    let unused = !(named || groups || dirty)
                        && matches!(
                            state,
                            HeaderState::Zero | HeaderState::Older | HeaderState::Damaged
                        );
                    let verdict = judge_header(&facts).verdict;
                    let is_newer = state == HeaderState::Unknown;
                    assert_eq!(verdict == Verdict::Unknown, is_newer, "{facts:?}");
                    assert_eq!(
                        matches!(verdict, Verdict::Corrupt(_)),
                        !unused && !is_newer,
                        "{facts:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn names_are_unique() {
    let names = || ROWS.iter().map(|row| row.name).chain(HEADER_ROWS.iter().map(|row| row.name));
    for name in names() {
        assert_eq!(names().filter(|other| *other == name).count(), 1, "{name}");
    }
}
