//! The fewest parts that still do what all of them do.
//!
//! *Owns*: the search (delta debugging: Zeller and Hildebrandt, 2002). *May not touch*: what the
//! parts are.

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fewest {
    pub(crate) parts: Vec<usize>,
    /// Without any one of them it is no longer so. Otherwise the search was ended early.
    pub(crate) is_least: bool,
}

/// `holds` is true of all `parts`, and not of none. It is asked of some of them, again and again,
/// until it has no answer.
pub(crate) fn fewest<E>(
    mut parts: Vec<usize>,
    holds: &mut impl FnMut(&[usize]) -> Result<Option<bool>, E>,
) -> Result<Fewest, E> {
    let mut pieces = 2;
    while parts.len() > 1 {
        let size = parts.len().div_ceil(pieces);
        let alone = parts.chunks(size).map(|piece| (piece.to_vec(), 2));
        let without = (0..parts.len()).step_by(size).map(|at| {
            let rest = [&parts[..at], &parts[(at + size).min(parts.len())..]].concat();
            (rest, (pieces - 1).max(2))
        });
        let mut fewer = None;
        // Of two halves each is what the other one leaves.
        for (some, next) in alone.chain(without.filter(|_| pieces > 2)) {
            match holds(&some)? {
                None => return Ok(Fewest { parts, is_least: false }),
                Some(true) => {
                    fewer = Some((some, next));
                    break;
                }
                Some(false) => {}
            }
        }
        match fewer {
            Some(found) => (parts, pieces) = found,
            None if size == 1 => break,
            None => pieces = (2 * pieces).min(parts.len()),
        }
    }
    Ok(Fewest { parts, is_least: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_left_and_the_search_is_short() {
        for wanted in [&[7][..], &[0, 99], &[3, 50, 51, 98]] {
            let mut asked = 0;
            let found = fewest((0..100).collect(), &mut |some: &[usize]| {
                asked += 1;
                Ok::<_, ()>(Some(wanted.iter().all(|part| some.contains(part))))
            });
            let parts = wanted.to_vec();
            assert_eq!(found, Ok(Fewest { parts, is_least: true }));
            assert!(asked <= 200, "{wanted:?}: {asked}");
        }
    }

    #[test]
    fn an_end_without_an_answer_leaves_what_was_found_until_then() {
        let mut left = 3;
        let found = fewest((0..64).collect(), &mut |some: &[usize]| {
            left -= 1;
            Ok::<_, ()>((left >= 0).then(|| some.contains(&1)))
        });
        assert_eq!(found, Ok(Fewest { parts: (0..8).collect(), is_least: false }));
    }
}
