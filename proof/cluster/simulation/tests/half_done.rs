//! What is answered to `add` and `remove`: done only if all of it is done, and not done only if
//! nothing happened.
//!
//! openraft changes voters in two steps, and `add` makes a learner first. Here one step is done,
//! and the leader that was asked is deposed before the next. A later change completes what was
//! begun, so the answer must not be that nothing happened.

use std::collections::BTreeMap;
use std::time::Duration;

use replicated_log::node::NodeOptions;
use replicated_log::runtime::simulate;
use replicated_log::wire::{Answer, Question};
use replicated_log_simulation::chronicle::{Entry, Members, What};
use replicated_log_simulation::machine::Settings;
use replicated_log_simulation::world::World;
use tokio::time::Instant;

fn settings() -> Settings {
    let mut node = NodeOptions::new(20, 60, 10_000);
    node.write_timeout = Duration::from_millis(500);
    Settings { node, log: inkstone::Options::small().own_thread(false) }
}

/// Runs a test in a cluster of three, with a leader, and a fourth machine that runs.
fn run<T>(seed: u64, test: impl AsyncFn(&World, u64) -> T) -> T {
    simulate(seed);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let world = World::new(seed, None, false);
        for id in 1..=3 {
            world.new_machine();
            world.start(id, &settings()).await.expect("a new disk");
        }
        world.init().await.expect("a new cluster");
        let leader = leader(&world, None).await;
        world.sleep(100).await;
        world.new_machine();
        world.start(4, &settings()).await.expect("a new disk");
        let done = test(&world, leader).await;
        world.lock().slots.iter_mut().for_each(|slot| drop(slot.node.take()));
        done
    })
}

async fn leader(world: &World, but: Option<u64>) -> u64 {
    loop {
        match world.leader_but(but) {
            Some(leader) => return leader,
            None => world.sleep(1).await,
        }
    }
}

/// The members, as a node knows them.
async fn nodes(world: &World, id: u64) -> BTreeMap<u64, String> {
    match world.ask(id, Question::Status, Duration::from_secs(1)).await {
        Some(Answer::Status(status)) => status.nodes,
        other => panic!("{other:?}"),
    }
}

/// Asks the leader for a change, and lets it stand still when the log has what is awaited.
async fn asked_of_a_leader_that_stands_still(
    world: &World,
    leader: u64,
    question: Question,
    is_there: impl Fn(&Members) -> bool,
) -> Option<Answer> {
    let asked = {
        let world = world.clone();
        tokio::spawn(async move { world.ask(leader, question, Duration::from_secs(10)).await })
    };
    let is_half_done = || {
        let is_there =
            |entry: &Entry| matches!(&entry.what, What::Members(members) if is_there(members));
        world.lock().chronicle.entries().any(is_there)
    };
    while !is_half_done() {
        world.sleep(1).await;
    }
    world.lock().slot(leader).stopped_until = Instant::now() + Duration::from_secs(1);
    asked.await.expect("a question does not panic")
}

#[test]
fn a_removal_whose_first_step_was_done_is_unknown() {
    for seed in 1..=20 {
        let answer = run(seed, async |world, leader| {
            let is_joint = |members: &Members| members.voters.len() > 1;
            let question = Question::Remove(leader);
            let answer =
                asked_of_a_leader_that_stands_still(world, leader, question, is_joint).await;
            assert!(world.leader_but(Some(leader)).is_some(), "another node leads");
            answer
        });
        assert!(matches!(answer, Some(Answer::Unknown(_))), "seed {seed}: {answer:?}");
    }
}

#[test]
fn an_add_that_made_a_member_is_unknown() {
    for seed in 1..=5 {
        let (answer, nodes) = run(seed, async |world, asked| {
            let question = Question::Add(4, "node-4".into());
            let learns = |members: &Members| members.all.contains(&4);
            let answer = asked_of_a_leader_that_stands_still(world, asked, question, learns).await;
            world.sleep(2000).await;
            (answer, nodes(world, leader(world, None).await).await)
        });
        assert!(matches!(answer, Some(Answer::Unknown(_))), "seed {seed}: {answer:?}");
        assert!(nodes.contains_key(&4), "seed {seed}: {nodes:?}");
    }
}

#[test]
fn a_member_is_not_added_at_another_address() {
    let (answer, id, nodes) = run(1, async |world, leader| {
        let id = 1 + leader % 3;
        let question = Question::Add(id, "moved".into());
        let answer = world.ask(leader, question, Duration::from_secs(5)).await;
        world.sleep(500).await;
        (answer, id, nodes(world, leader).await)
    });
    assert!(matches!(answer, Some(Answer::Refused(_))), "{answer:?}");
    assert_eq!(nodes[&id], format!("node-{id}"));
}

/// A leader that is cut off has noted a membership that comes to nothing. It must not send away who
/// asks for the right one.
#[test]
fn a_membership_that_is_not_committed_refuses_nobody() {
    let (noted, answer, nodes) = run(1, async |world, old| {
        world.lock().slot(old).side = 1;
        let wrong = Question::Add(4, "wrong".into());
        let unconfirmed = world.ask(old, wrong, Duration::from_millis(300)).await;
        assert!(unconfirmed.is_none(), "nobody confirms it");
        let other = leader(world, Some(old)).await;
        let noted = nodes(world, old).await.contains_key(&4);
        let right = Question::Add(4, "node-4".into());
        let answer = world.ask(old, right, Duration::from_secs(1)).await;
        (noted, answer, nodes(world, other).await)
    });
    assert!(noted && !nodes.contains_key(&4), "{nodes:?}");
    assert!(!matches!(answer, Some(Answer::Refused(_) | Answer::Changed)), "{answer:?}");
}
