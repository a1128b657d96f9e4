//! Many streams under threads that wait for each record: over one stream and over many, in the same
//! rounds; and with idle streams whose records are never given up.
//!
//! *Owns*: who takes part, which ratios are printed. *May not touch*: how a turn runs.

use inkstone_lab::stats::relative;

use super::appending::Appending;
use super::plan::{Load, Plan, made};
use crate::engine::Kind;
use crate::many::{ManyKind, Spread};
use crate::result::{Arm, LoadResult};
use crate::rounds;
use crate::table::ratio;

const THREADS: u32 = 64;
const RECORD_BYTES: usize = 128;
const COUNTS: [u32; 4] = [1, 64, 1_000, 100_000];
/// What all streams together keep, at least, and what each does.
const KEEP: u64 = 1 << 18;
const KEEP_EACH: u64 = 10;

/// Of those with idle streams.
const IDLE_THREADS: u32 = 16;
const IDLE_RECORD_BYTES: usize = 4_000;
const IDLE: u32 = 100;
const ACTIVE: u32 = 900;

pub fn rates(plan: &Plan, load: &Load) -> Vec<LoadResult> {
    let (mut contestants, mut counts) = (Vec::new(), Vec::new());
    for active in COUNTS {
        let keep = (KEEP / u64::from(active)).max(KEEP_EACH);
        let spread = Spread { threads: THREADS, active, idle: 0, keep, record_bytes: RECORD_BYTES };
        let before = contestants.len();
        for kind in plan.engines.iter().flat_map(|&engine| kinds(engine, &spread)) {
            contestants.push(made(kind.name(), Appending::many(plan, kind.name(), kind, spread)));
        }
        counts.push((active, keep, contestants.len() - before));
    }
    let mut arms = rounds::run(&plan.pace, contestants).into_iter();
    let mut one_stream = None;
    let result = |(active, keep, count): (u32, u64, usize)| {
        let arms: Vec<Arm> = arms.by_ref().take(count).collect();
        let mut notes = vec![format!(
            "{active} streams, each keeps its last {keep} records or a few more; a thread takes \
             its own streams in turn"
        )];
        if active == 1 {
            notes.push(
                "all threads write to it; a region of raft-engine has one writer at a time: \
                 raft-64x128 has one"
                    .into(),
            );
        }
        let mut result = load.result(RECORD_BYTES, arms, notes);
        result.name = format!("{} {active}", load.name);
        let mut told = Vec::new();
        if let Some(own) = result.arm(ManyKind::Inkstone.name()) {
            let others = result.arms.iter().filter(|arm| arm.counts() && arm.name != own.name);
            let others = others.map(|arm| (arm.name.as_str(), arm));
            for (name, base) in
                one_stream.as_ref().map(|one| ("one stream", one)).into_iter().chain(others)
            {
                if let Some(found) = own.speed_over(base, plan.pace.seed) {
                    told.push(format!("{} of {name}", ratio(found)));
                }
            }
            if !told.is_empty() {
                told = vec![format!("{}: {}", own.name, told.join("; "))];
            }
            told.extend(own.per_group());
            if active == 1 {
                one_stream = Some(own.clone());
            }
        }
        result.notes.extend(told);
        result
    };
    counts.into_iter().map(result).collect()
}

/// How the streams of an engine are opened for this.
fn kinds(engine: Kind, spread: &Spread) -> Vec<ManyKind> {
    match ManyKind::of(engine) {
        // Its regions have one writer each.
        Some(ManyKind::RaftEngine) if spread.active < spread.threads => Vec::new(),
        Some(ManyKind::RaftEngine) => {
            vec![ManyKind::RaftEngine, ManyKind::RaftEngineRecycled(spread.live_bytes())]
        }
        other => other.into_iter().collect(),
    }
}

pub fn idle(plan: &Plan, load: &Load) -> LoadResult {
    let arm = |name: &str, idle| {
        let spread = Spread {
            threads: IDLE_THREADS,
            active: ACTIVE,
            idle,
            keep: KEEP_EACH,
            record_bytes: IDLE_RECORD_BYTES,
        };
        made(name, Appending::many(plan, name, ManyKind::Inkstone, spread))
    };
    let mut contestants = Vec::new();
    if plan.engines.contains(&Kind::Inkstone) {
        contestants = vec![arm("inkstone", IDLE), arm("inkstone without idle", 0)];
    }
    let arms = rounds::run(&plan.pace, contestants);
    let mut notes = vec![format!(
        "{IDLE_THREADS} threads, {ACTIVE} streams in turn, each keeps its last {KEEP_EACH} records \
         or a few more; beside them {IDLE} idle ones that keep {KEEP_EACH} for ever, which are \
         compared at the end"
    )];
    if let [with, without] = &arms[..]
        && let Some(found) = relative(&with.p99_rounds, &without.p99_rounds, plan.pace.seed)
    {
        notes.push(format!("p99 of a commit: {} of that without idle streams", ratio(found)));
    }
    load.result(IDLE_RECORD_BYTES, arms, notes)
}
