//! What is answered to `add` and `remove`: done only if all of it is done, and not done only if
//! nothing happened.
//!
//! openraft changes voters in two steps, and `add` makes a learner first. Here one step is done,
//! and the leader that was asked is deposed before the next. A later change completes what was
//! begun, so the answer must not be that nothing happened.

use std::time::Duration;

use replicated_log::node::NodeOptions;
use replicated_log::runtime::simulate;
use replicated_log::{Answer, Question};
use replicated_log_simulation::chronicle::{Entry, Members, What};
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

async fn cluster(seed: u64, machines: u64) -> (World, u64) {
    let (world, settings) = (World::new(seed, None, false), settings());
    for id in 1..=machines {
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
    (world, leader)
}

fn run<T>(seed: u64, test: impl Future<Output = T>) -> T {
    simulate(seed);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test)
}

async fn status(world: &World, id: u64) -> replicated_log::NodeStatus {
    match world.ask(id, Question::Status, Duration::from_secs(1)).await {
        Some(Answer::Status(status)) => *status,
        other => panic!("{other:?}"),
    }
}

fn end(world: &World) {
    world.lock().slots.iter_mut().for_each(|slot| drop(slot.node.take()));
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
    world.lock().slots[leader as usize - 1].stopped_until = Instant::now() + Duration::from_secs(1);
    asked.await.expect("a question does not panic")
}

#[test]
fn a_removal_whose_first_step_was_done_is_unknown() {
    for seed in 1..=20 {
        let answer = run(seed, async {
            let (world, leader) = cluster(seed, 3).await;
            let question = Question::Remove { id: leader };
            let is_joint = |members: &Members| members.voters.len() > 1;
            let answer =
                asked_of_a_leader_that_stands_still(&world, leader, question, is_joint).await;
            assert!(world.leader_but(Some(leader)).is_some(), "another node leads");
            end(&world);
            answer
        });
        assert!(matches!(answer, Some(Answer::Unknown(_))), "seed {seed}: {answer:?}");
    }
}

#[test]
fn an_add_that_made_a_member_is_unknown() {
    for seed in 1..=5 {
        let (answer, nodes) = run(seed, async {
            let (world, leader) = cluster(seed, 3).await;
            let id = world.new_machine();
            world.start(id, &settings()).await.expect("a new disk");
            let question = Question::Add { id, address: format!("node-{id}") };
            let learns = |members: &Members| members.all.contains(&id);
            let answer =
                asked_of_a_leader_that_stands_still(&world, leader, question, learns).await;
            world.sleep(2000).await;
            let other = world.leader_but(None).expect("a leader");
            let nodes = status(&world, other).await.nodes;
            end(&world);
            (answer, nodes)
        });
        assert!(matches!(answer, Some(Answer::Unknown(_))), "seed {seed}: {answer:?}");
        assert!(nodes.contains_key(&4), "seed {seed}: {nodes:?}");
    }
}

#[test]
fn a_member_is_not_added_at_another_address() {
    let (answer, id, nodes) = run(1, async {
        let (world, leader) = cluster(1, 3).await;
        let id = 1 + leader % 3;
        let question = Question::Add { id, address: "moved".into() };
        let answer = world.ask(leader, question, Duration::from_secs(5)).await;
        world.sleep(500).await;
        let nodes = status(&world, leader).await.nodes;
        end(&world);
        (answer, id, nodes)
    });
    assert!(matches!(answer, Some(Answer::Refused(_))), "{answer:?}");
    assert_eq!(nodes[&id], format!("node-{id}"));
}

/// A leader that is cut off has noted a membership that comes to nothing. It must not send away who
/// asks for the right one.
#[test]
fn a_membership_that_is_not_committed_refuses_nobody() {
    let (noted, answer, nodes) = run(1, async {
        let (world, leader) = cluster(1, 3).await;
        let id = world.new_machine();
        world.start(id, &settings()).await.expect("a new disk");
        world.lock().slots[leader as usize - 1].side = 1;
        let wrong = Question::Add { id, address: "wrong".into() };
        assert!(
            world.ask(leader, wrong, Duration::from_millis(300)).await.is_none(),
            "nobody confirms it"
        );
        let other = loop {
            match world.leader_but(Some(leader)) {
                Some(other) => break other,
                None => world.sleep(5).await,
            }
        };
        let noted = status(&world, leader).await.nodes.contains_key(&id);
        let right = Question::Add { id, address: format!("node-{id}") };
        let answer = world.ask(leader, right, Duration::from_secs(1)).await;
        let nodes = status(&world, other).await.nodes;
        end(&world);
        (noted, answer, nodes)
    });
    assert!(noted && !nodes.contains_key(&4), "{nodes:?}");
    assert!(!matches!(answer, Some(Answer::Refused(_) | Answer::Changed)), "{answer:?}");
}
