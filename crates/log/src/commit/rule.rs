//! The commit rule: which waiter writes the open group, and when.
//!
//! *Owns*: the counts, and what follows from them. *May not touch*: locks, threads, the clock.
//!
//! *Groups by expectation*: the waiter that completes the expected number writes the group.
//! Expected are the waiters of the group that was just acknowledged and those that were waiting
//! already. The first waiter of a group holds a timer of about one commit, in case the others do
//! not come. A lone waiter expects only itself, and never waits for others.
//!
//! The other waiters sleep three times as long. If the holder has not led by then, because it got
//! no processor, one of them leads.
//!
//! A *task* is a waiter that is no thread: a future, or a callback. It counts like any other; the
//! committer leads for tasks, and holds the timer for them.

use std::time::Duration;

/// The timer is kept within these bounds.
const LINGER_MIN: Duration = Duration::from_micros(20);
const LINGER_MAX: Duration = Duration::from_millis(10);

/// What a waiter does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaiterStep {
    /// It writes the group.
    Lead,
    /// It sleeps until it is woken: another thread writes.
    Sleep,
    /// Another one holds the timer: it sleeps until it is woken, or this time is over.
    Watch(Duration),
    /// It holds the timer: it sleeps until it is woken, or this time is over.
    Hold(Duration),
}

/// The waiters of the open group: how many there are, and how many are expected.
#[derive(Debug)]
pub(crate) struct Rule {
    waiting: usize,
    /// So many of them are tasks.
    tasks: usize,
    expected: usize,
    /// The group before had tasks.
    expects_tasks: bool,
    /// A waiter holds the timer, or the committer does.
    is_timed: bool,
    /// How long commits take, smoothed.
    commit_time: Duration,
}

impl Rule {
    pub(crate) fn new() -> Self {
        Self {
            waiting: 0,
            tasks: 0,
            expected: 0,
            expects_tasks: false,
            is_timed: false,
            commit_time: Duration::from_micros(100),
        }
    }

    /// Whether the open group has waiters.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting > 0
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Whether the committer may have to lead or to hold the timer: the open group has tasks, or
    /// those of the last group may return.
    pub(crate) fn is_for_committer(&self) -> bool {
        self.tasks > 0 || self.expects_tasks
    }

    /// One more waiter for the open group.
    pub(crate) fn arrive(&mut self) {
        self.waiting += 1;
    }

    /// One more waiter for the open group that is no thread. True if the committer is to be woken,
    /// to lead or to hold the timer.
    pub(crate) fn task_arrives(&mut self, is_writing: bool) -> bool {
        self.tasks += 1;
        self.waiting += 1;
        !is_writing && (self.waiting >= self.expected || !self.is_timed)
    }

    /// A task that was counted for the open group does not wait any more.
    pub(crate) fn task_leaves(&mut self) {
        self.tasks -= 1;
        self.waiting -= 1;
    }

    /// The tasks of the last group have not returned in time.
    pub(crate) fn expect_no_tasks(&mut self) {
        self.expects_tasks = false;
    }

    /// The next step of a waiter that was counted. `is_writing`: another group is being written.
    /// `is_late`: the waiter's timer has ended, or it was not woken in time.
    pub(crate) fn step(&mut self, is_writing: bool, is_late: bool) -> WaiterStep {
        if is_writing {
            WaiterStep::Sleep
        } else if is_late || self.waiting >= self.expected {
            WaiterStep::Lead
        } else {
            let linger = self.commit_time.clamp(LINGER_MIN, LINGER_MAX);
            let is_held = std::mem::replace(&mut self.is_timed, true);
            // Three timers: time for the holder's timer and for its commit.
            if is_held { WaiterStep::Watch(3 * linger) } else { WaiterStep::Hold(linger) }
        }
    }

    /// The waiter that held the timer is awake, and its group is still open.
    pub(crate) fn timer(&mut self) {
        self.is_timed = false;
    }

    /// The open group is closed; returns the number of its waiters. The first waiter of the next
    /// group takes a new timer.
    pub(crate) fn close(&mut self) -> usize {
        self.is_timed = false;
        self.expects_tasks = std::mem::take(&mut self.tasks) > 0;
        std::mem::take(&mut self.waiting)
    }

    /// A group with this many waiters is durable. They are expected again.
    pub(crate) fn committed(&mut self, waiters: usize, took: Duration) {
        self.commit_time = (self.commit_time * 7 + took) / 8;
        self.expected = waiters + self.waiting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_micros(100);

    /// After a group of `acknowledged` waiters, when `early` others waited already, `now` waiters
    /// are there.
    fn after(acknowledged: usize, early: usize, now: usize) -> Rule {
        let mut rule = Rule::new();
        (0..acknowledged).for_each(|_| rule.arrive());
        assert_eq!(rule.close(), acknowledged);
        (0..early).for_each(|_| rule.arrive());
        rule.committed(acknowledged, TOOK);
        (early..now).for_each(|_| rule.arrive());
        rule
    }

    #[test]
    fn who_leads_and_who_sleeps() {
        let hold = WaiterStep::Hold(TOOK);
        // acknowledged, early, now; another group is being written; late -> the step
        for (counts, is_writing, is_late, step) in [
            // A lone writer expects one, and never waits.
            ((0, 0, 1), false, false, WaiterStep::Lead),
            ((1, 0, 1), false, false, WaiterStep::Lead),
            // Eight that take turns: the eighth leads, the first holds the timer.
            ((8, 0, 1), false, false, hold),
            ((8, 0, 7), false, false, hold),
            ((8, 0, 8), false, false, WaiterStep::Lead),
            // Waiters that were there already are expected besides those that were acknowledged.
            ((4, 4, 7), false, false, hold),
            ((4, 4, 8), false, false, WaiterStep::Lead),
            // More than expected do not wait for more.
            ((1, 0, 3), false, false, WaiterStep::Lead),
            // One group is in flight at a time, also when all are there, or one is late.
            ((8, 0, 8), true, false, WaiterStep::Sleep),
            ((8, 0, 1), true, true, WaiterStep::Sleep),
            // The timer has ended: the waiters that are there go.
            ((8, 0, 1), false, true, WaiterStep::Lead),
        ] {
            let (acknowledged, early, now) = counts;
            let mut rule = after(acknowledged, early, now);
            assert_eq!(rule.step(is_writing, is_late), step, "{counts:?}, {is_writing}, {is_late}");
        }
    }

    #[test]
    fn one_waiter_holds_the_timer_of_a_group() {
        let mut rule = after(4, 0, 2);
        assert_eq!(rule.step(false, false), WaiterStep::Hold(TOOK));
        assert_eq!(
            rule.step(false, false),
            WaiterStep::Watch(3 * TOOK),
            "the other waiter holds it"
        );
        // The holder was woken, and the group is still open: it may hold the timer again.
        rule.timer();
        assert!(!rule.is_timed());
        assert_eq!(rule.step(false, false), WaiterStep::Hold(TOOK));
        // The group was written without it.
        assert_eq!(rule.close(), 2);
        assert!(!rule.is_timed() && !rule.has_waiters());
        rule.committed(2, TOOK);
        rule.arrive();
        assert_eq!(
            rule.step(false, false),
            WaiterStep::Hold(TOOK),
            "the next group has a timer of its own"
        );
    }

    #[test]
    fn a_task_that_leaves_is_not_counted_and_not_expected_again() {
        let mut rule = Rule::new();
        (0..8).for_each(|_| _ = rule.task_arrives(false));
        (0..7).for_each(|_| rule.task_leaves());
        assert!(rule.is_for_committer() && rule.has_waiters());
        assert_eq!(rule.close(), 1);
        rule.committed(1, TOOK);
        rule.arrive();
        assert_eq!(rule.step(false, false), WaiterStep::Lead, "a lone waiter expects itself");
        // The last one leaves: there is nothing to lead for.
        rule.close();
        rule.committed(1, TOOK);
        rule.task_arrives(false);
        rule.task_leaves();
        assert!(!rule.is_for_committer() && !rule.has_waiters());
    }

    #[test]
    fn the_timer_follows_the_commits_within_bounds() {
        for (took, least, most) in [
            (Duration::ZERO, LINGER_MIN, LINGER_MIN),
            (Duration::from_millis(1), Duration::from_micros(990), Duration::from_millis(1)),
            (Duration::from_secs(1), LINGER_MAX, LINGER_MAX),
        ] {
            let mut rule = Rule::new();
            (0..100).for_each(|_| rule.committed(2, took));
            rule.arrive();
            let WaiterStep::Hold(linger) = rule.step(false, false) else { panic!("{rule:?}") };
            assert!(least <= linger && linger <= most, "{took:?}: {linger:?}");
        }
    }
}
