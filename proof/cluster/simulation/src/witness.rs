//! The witness: it looks at the state of each node all the time, so that nodes which disagree are
//! seen although they agree at the end.
//!
//! *Owns*: which state belongs to which index. *May not touch*: what nodes do.
//!
//! A state machine that is made again from a snapshot, or that was truncated and follows another
//! leader, hides what it has applied before. Here the first node that is seen at an index says
//! which entry and which state belong there, and no other may differ, in no life of it.

use std::collections::BTreeMap;

use crate::world::{Seen, Witnessed, World};

/// How often it looks, in milliseconds of the simulation.
const EVERY_MS: u64 = 20;

/// Looks until it is aborted.
pub async fn run(world: World) {
    let mut last = BTreeMap::new();
    while world.lock().broken.is_empty() {
        for id in 1..=world.machines() {
            let Some((node, generation)) = world.live(id) else { continue };
            let Some(applied) = node.machine().applied() else { continue };
            if last.insert(id, (generation, applied)) == Some((generation, applied)) {
                continue;
            }
            let seen = (applied, node.machine().fingerprint());
            let differs = differs(&mut world.lock().witnessed, id, seen);
            if let Some(why) = differs {
                world.broken(why);
            }
            world.lock().counts.add("witnessed", true);
        }
        world.sleep(EVERY_MS).await;
    }
}

/// What is wrong with this state of a node, if another one was seen at this index.
fn differs(by_index: &mut Witnessed, node: u64, seen: Seen) -> Option<String> {
    let (first, before) = *by_index.entry(seen.0.index).or_insert((node, seen));
    (before != seen).then(|| {
        let show = |(id, (keys, sum)): Seen| format!("entry {id}, {keys} keys, state {sum:x}");
        format!(
            "index {}: node {first} has applied {}, and node {node} {}",
            seen.0.index,
            show(before),
            show(seen)
        )
    })
}

#[cfg(test)]
mod tests {
    use replicated_log::types::LogId;

    use super::*;

    #[test]
    fn another_entry_or_state_at_an_index_is_noticed() {
        let entry =
            |term| LogId::new(openraft::vote::leader_id_adv::LeaderId { term, node_id: 1 }, 7);
        let mut by_index = BTreeMap::new();
        assert_eq!(differs(&mut by_index, 1, (entry(2), (1, 5))), None);
        assert_eq!(differs(&mut by_index, 2, (entry(2), (1, 5))), None);
        assert!(
            differs(&mut by_index, 3, (entry(2), (1, 6)))
                .is_some_and(|why| why.contains("index 7"))
        );
        assert!(differs(&mut by_index, 3, (entry(3), (1, 5))).is_some());
    }
}
