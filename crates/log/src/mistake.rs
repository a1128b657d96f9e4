//! Mistakes that can be built in on purpose, so that the tests show that they would be noticed.
//!
//! *Owns*: their names and what each does. *May not touch*: anything; where a mistake is made, the code asks. They are
//! chosen at run time in the one build there is, by an option that is not part of the public interface.
//! docs/durability.md lists each with the test that catches it.

inkstone_io::named_choice! {
    /// A mistake that other engines have made.
    Mistake, "mistake" {
        NoSync = "no-sync", "a commit is acknowledged without a sync";
        NoDirectorySync = "no-directory-sync", "a segment gets its name without a sync of the directory";
        NoIdentity = "no-identity", "checksums leave out the log and the segment";
        NoPromise = "no-promise", "groups do not store the promise";
        PromiseTooHigh = "promise-too-high", "a group promises the one before it, which is not durable yet";
        CutsBelowPromise = "cuts-below-promise", "opening ends the log at the first bad frame, also below a promise";
        RetriesSync = "retries-sync", "a failed sync is tried again";
        FollowerToldOk = "follower-told-ok", "a waiter takes another group's success for its own";
        EpochNotSynced = "epoch-not-synced", "the epoch group of an opening is not synced";
        FirstGroupEarly = "first-group-early", "a segment's first group is written before its predecessor is durable";
        TailRewritten = "tail-rewritten", "the block in which the log ends is cleared before it is written again";
        ShowsUnsynced = "shows-unsynced", "opening shows what a killed writer left without syncing it first";
        ReadsPageCache = "reads-page-cache", "recovery reads the page cache, which a failed sync leaves wrong";
        ZerosUnsynced = "zeros-unsynced", "a prepared segment is published before its zeros are synced";
        RenamedFirst = "renamed-first", "a prepared segment gets its name before its blocks are synced";
        RecyclesPinned = "recycles-pinned", "a segment is used again while a reader holds it";
        OverBudget = "over-budget", "preparing ahead does not ask what the log may take of the disk";
        RemovesFirst = "removes-first", "truncate_before takes files away before it is durable";
    }
}
