//! Whether all nodes have come to the same state: each says up to which entry it has applied the
//! log, and a checksum over what it has then.
//!
//! *Owns*: when states count as the same, and for how long nodes may differ. *May not touch*: how
//! nodes are asked (`clients.rs`).
//!
//! Clients see what the leader has. A node whose state differs answers nobody until it leads, so it
//! is looked for here.

use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A node says first what its state is, then up to where: an entry may be applied between the two.
/// So different states at one index count when they stay for so long.
const DIFFER_FOR: Duration = Duration::from_secs(10);

/// What a node has applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    pub index: Option<u64>,
    /// A checksum over the whole state.
    pub fingerprint: u64,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.index.map_or("nothing".into(), |index| index.to_string());
        write!(f, "applied {index}, state {:016x}", self.fingerprint)
    }
}

/// Waits until all nodes have the same state. `look` asks each of them; `None`: it does not answer.
///
/// # Errors
/// They differ, at the same index, or did not come to the same index within `patience`: in words,
/// with what each has.
pub async fn wait_until_same<F: Future<Output = Vec<Option<Applied>>>>(
    mut look: impl FnMut() -> F,
    patience: Duration,
) -> Result<(), String> {
    let start = Instant::now();
    let mut differs: Option<(Instant, Vec<Option<Applied>>)> = None;
    loop {
        let seen = look().await;
        let first = seen.first().copied().flatten();
        if seen.iter().all(|one| one.is_some() && *one == first) {
            return Ok(());
        }
        let is_level = seen
            .iter()
            .all(|one| one.is_some_and(|one| first.is_some_and(|first| one.index == first.index)));
        differs = differs
            .filter(|(_, before)| is_level && *before == seen)
            .or(is_level.then(|| (Instant::now(), seen.clone())));
        let is_late = start.elapsed() >= patience;
        if differs.as_ref().is_some_and(|(since, _)| is_late || since.elapsed() >= DIFFER_FOR) {
            return Err(format!(
                "nodes that applied the same entries have different states: {}",
                words(&seen)
            ));
        }
        if is_late {
            return Err(format!(
                "the nodes did not come to the same entry within {patience:?}: {}",
                words(&seen)
            ));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn words(seen: &[Option<Applied>]) -> String {
    let one = |(place, one): (usize, &Option<Applied>)| match one {
        Some(applied) => format!("node {} {applied}", place + 1),
        None => format!("node {} does not answer", place + 1),
    };
    seen.iter().enumerate().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For nodes that never agree.
    const SHORT: Duration = Duration::from_millis(60);
    /// For nodes that come to agree, on a machine that may be busy.
    const LONG: Duration = Duration::from_secs(60);

    fn at(index: u64, fingerprint: u64) -> Option<Applied> {
        Some(Applied { index: Some(index), fingerprint })
    }

    /// Shows these one after the other, and then the last one for ever.
    async fn judged(looks: &[&[Option<Applied>]], patience: Duration) -> Result<(), String> {
        let mut left = looks.iter().copied().peekable();
        let mut last = Vec::new();
        let next = || {
            if let Some(seen) = left.next() {
                last = seen.to_vec();
            }
            std::future::ready(last.clone())
        };
        wait_until_same(next, patience).await
    }

    #[tokio::test]
    async fn nodes_may_be_late_and_may_not_differ() {
        let same = [at(7, 1), at(7, 1), at(7, 1)];
        assert_eq!(judged(&[&same], LONG).await, Ok(()));
        // One is behind, one says a new state with an old index, one does not answer yet.
        let early: [&[_]; 4] = [
            &[at(7, 1), at(6, 2), at(7, 1)],
            &[at(7, 1), at(6, 1), at(7, 1)],
            &[at(7, 1), None, at(7, 1)],
            &same,
        ];
        assert_eq!(judged(&early, LONG).await, Ok(()));
        let differ =
            judged(&[&[at(7, 1), at(7, 2), at(7, 1)]], SHORT).await.expect_err("they differ");
        assert!(
            differ.contains("different states") && differ.contains("node 2 applied 7"),
            "{differ}"
        );
        for late in [[at(7, 1), at(6, 1)], [at(7, 1), None]] {
            let why = judged(&[&late], SHORT).await.expect_err("it never comes");
            assert!(why.contains("did not come to the same entry"), "{why}");
        }
    }
}
