//! A change of the membership that is half done is not called undone.
//!
//! openraft changes voters in two steps. Here the first one is committed by another leader than the one that was asked, whose second step then fails with
//! the error of a node that does not lead. A later change completes the first step, so the answer must not be that nothing happened.

use std::time::Duration;

use replicated_log::node::NodeOptions;
use replicated_log::runtime::simulate;
use replicated_log::{Answer, Question};
use replicated_log_simulation::chronicle::What;
use replicated_log_simulation::machine::Settings;
use replicated_log_simulation::world::World;
use tokio::time::Instant;

fn settings() -> Settings {
    let node = NodeOptions {
        heartbeat: Duration::from_millis(20),
        election: Duration::from_millis(60),
        write_timeout: Duration::from_millis(500),
        ..NodeOptions::default()
    };
    Settings { node, log: inkstone::Options::small().own_thread(false) }
}

fn is_half_done(world: &World) -> bool {
    let state = world.lock();
    state
        .chronicle
        .entries()
        .any(|entry| matches!(&entry.what, What::Members(members) if members.voters.len() > 1))
}

/// Asks the leader to remove itself, and lets it stand still when the first step is on its way to the others.
async fn removal_of_a_leader_that_stands_still(seed: u64) -> Option<Answer> {
    let (world, settings) = (World::new(seed, None, false), settings());
    for id in 1..=3 {
        world.new_machine();
        world.start(id, &settings).await.expect("a new disk");
    }
    world.init().await.expect("a new cluster");
    let leader = loop {
        match world.leader_but(None) {
            Some(leader) => break leader,
            None => world.sleep(1).await,
        }
    };
    world.sleep(100).await;
    let asked = {
        let world = world.clone();
        tokio::spawn(async move {
            world.ask(leader, Question::Remove { id: leader }, Duration::from_secs(10)).await
        })
    };
    while !is_half_done(&world) {
        world.sleep(1).await;
    }
    world.lock().slots[leader as usize - 1].stopped_until = Instant::now() + Duration::from_secs(1);
    let answer = asked.await.expect("a question does not panic");
    assert!(world.leader_but(Some(leader)).is_some(), "another node leads");
    // Nodes hold the world, and the world holds them.
    world.lock().slots.iter_mut().for_each(|slot| drop(slot.node.take()));
    answer
}

#[test]
fn a_change_whose_first_step_was_done_is_unknown() {
    for seed in 1..=20 {
        simulate(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let answer = runtime.unwrap().block_on(removal_of_a_leader_that_stands_still(seed));
        assert!(matches!(answer, Some(Answer::Unknown(_))), "seed {seed}: {answer:?}");
    }
}
