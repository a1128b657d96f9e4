//! The mistakes that this copy of the log can make, to show that the labs catch them.
//!
//! *Owns*: their names and what each does. *May not touch*: anything; the code that makes a mistake
//! asks for it. The log that users have is without this file and without that code: `.ci/mistaken`
//! puts both into a copy (docs/mistakes.md).

inkstone_io::named_choice! {
    /// A mistake that other engines have made.
    Mistake, "mistake" {
        NoSync = "no-sync", "a commit is acknowledged without a sync";
        NoDirectorySync = "no-directory-sync",
            "a segment gets its name without a sync of the directory";
        NoIdentity = "no-identity", "checksums leave out the log and the segment";
        NoPromise = "no-promise", "groups do not store the promise";
        PromiseTooHigh = "promise-too-high",
            "a group promises the one before it, which is not durable yet";
        CutsBelowPromise = "cuts-below-promise",
            "opening ends the log at the first bad frame, also below a promise";
        RetriesSync = "retries-sync", "a failed sync is tried again";
        FollowerToldOk = "follower-told-ok", "a waiter takes another group's success for its own";
        EpochNotSynced = "epoch-not-synced", "the epoch group of an opening is not synced";
        FirstGroupEarly = "first-group-early",
            "a segment's first group is written before its predecessor is durable";
        TailRewritten = "tail-rewritten",
            "the block in which the log ends is cleared before it is written again";
        ShowsUnsynced = "shows-unsynced",
            "opening shows what a killed writer left without syncing it first";
        ReadsPageCache = "reads-page-cache",
            "recovery reads the page cache, which a failed sync leaves wrong";
        ZerosUnsynced = "zeros-unsynced",
            "a prepared segment is published before its zeros are synced";
        RenamedFirst = "renamed-first",
            "a prepared segment gets its name before its blocks are synced";
        RecyclesPinned = "recycles-pinned", "a segment is used again while a reader holds it";
        OverBudget = "over-budget",
            "preparing ahead does not ask what the log may take of the disk";
        RemovesFirst = "removes-first", "truncate_before takes files away before it is durable";
        EpochNotRaised = "epoch-not-raised",
            "an opening goes on in the epoch that it found, without a group of its own";
        LooksOneBlockAhead = "looks-one-block-ahead",
            "promises are looked for in the block after the end only";
        PromisedBytesIgnored = "promised-bytes-ignored",
            "recovery asks which LSN was promised, and not up to which byte";
        HeadByLsn = "head-by-lsn", "the segment with the highest first LSN is taken for the head";
        NamedEndIgnored = "named-end-ignored",
            "a segment is read to its last group, not to where its successor says that it ends";
        HalfGroups = "half-groups",
            "opening ends the log after the last whole record, not the last whole group";
        SpareNotJudged = "spare-not-judged",
            "opening does not look at files above the head that have no header";
        ExpectIgnored = "expect-ignored",
            "opening does not ask what its caller knows to be durable";
        TailNotRead = "tail-not-read",
            "opening does not read the block in which the log ends before writing it again";
        BatchSplit = "batch-split", "the records of a batch are appended one by one, as room comes";
        WatermarkEarly = "watermark-early", "the watermark is moved before the group is written";
        TurnNotHanded = "turn-not-handed",
            "a full buffer is handed over, and the turn stays free for the next group";
        WatermarkOnFailure = "watermark-on-failure",
            "the watermark is moved whatever became of the group";
        WatermarkOffByOne = "watermark-off-by-one",
            "a waiter for the record after the watermark gets Ok";
        SyncsFirst = "syncs-first", "the sync of a group is issued before its write has completed";
        SyncErrorIgnored = "sync-error-ignored", "nobody looks at what a sync answers";
        SyncForgets = "sync-forgets", "sync returns at once when nobody waits";
        PoisonForgotten = "poison-forgotten", "the next append after a failure forgets the failure";
        CloseSwallowsErrors = "close-swallows-errors", "close says Ok whatever happened";
        CloseForgets = "close-forgets", "close does not commit what was let go";
        NoLastPromise = "no-last-promise", "close leaves the last promise out";
        HeaderNotSynced = "header-not-synced",
            "a segment's header is not synced before the seal that names it";
        HeaderFailureRetried = "header-failure-retried",
            "a header whose write failed is left, and another file is tried";
        TruncationNotSynced = "truncation-not-synced",
            "the group of a truncate_before is not synced";
        TruncationForgottenAtRoll = "truncation-forgotten-at-roll",
            "a new segment's header repeats the first live LSN of the last one's";
        TruncationNeedsRoom = "truncation-needs-room",
            "truncate_before changes the segment and does not go without";
        CutBeforeRecord = "cut-before-record",
            "a cut names the byte where its last record begins, not where it ends";
        CutEpochNotSynced = "cut-epoch-not-synced", "the epoch group of a cut is not synced";
        CutUntold = "cut-untold", "readers and handles do not learn of a cut";
        CutKeepsPlace = "cut-keeps-place", "a reader goes on in what it read before a cut";
        StaleWindow = "stale-window", "a reader does not read a block again that has grown";
        ReadsPastWatermark = "reads-past-watermark",
            "readers are shown what is appended, durable or not";
        ShowsUnpromised = "shows-unpromised",
            "a reader beside a writer shows whole groups that nothing promises yet";
        HeaderBelieved = "header-believed",
            "a reader believes the header of a cut's segment before it is durable";
        UnsettledKept = "unsettled-kept",
            "a reader goes on behind the last whole group, not behind the last durable one";
        ObservedOnce = "observed-once",
            "recovery by a reader does not look whether a writer has come meanwhile";
        TruncatedShown = "truncated-shown", "a reader does not ask whether a record was truncated";
        GetUnsummed = "get-unsummed",
            "a record asked for by its LSN is handed out by its header, without summing its bytes";
        AheadUnsummed = "ahead-unsummed",
            "records of segments that are read ahead are handed out without their sums";
        SizeNotAllocated = "size-not-allocated", "a segment's file gets its size, and no blocks";
        RecyclesAnySize = "recycles-any-size", "a free file is used for a segment of another size";
        NoRoomPoisons = "no-room-poisons",
            "a full disk while a segment is obtained is taken for a failed write";
        PaddingForgotten = "padding-forgotten", "groups are not padded, though the options say so";
        FlagForgotten = "flag-forgotten",
            "an opening opens the last segment's file without O_DSYNC";
        WakesUnderLock = "wakes-under-lock", "futures are woken with the log's lock held";
        CutFuturesForgotten = "cut-futures-forgotten",
            "a future whose record a cut takes off is not woken";
        ChangeBeforeWatermark = "change-before-watermark",
            "readers see a cut before the watermark is set";
        PlaceNotAskedAgain = "place-not-asked-again",
            "a reader believes what it found while a cut changed the log";
        ForkMarkNotAsked = "fork-mark-not-asked",
            "a call does not ask whether it is in a forked child";
        ChildPromises = "child-promises",
            "a log that is dropped in a forked child commits and writes its last promise";
        WakeUpLost = "wake-up-lost",
            "a waiter looks at the bell only after it has let go of the lock";
        PoisonUntold = "poison-untold", "followers are not woken by the poison";
        CallbackEarly = "callback-early",
            "the callbacks of a group are called before it is written";
        AwaitedEarly = "awaited-early",
            "a task that awaits an LSN is woken when its record is appended, before it is durable";
        TailAboveWatermark = "tail-above-watermark",
            "a group is in the tail, and shown, before it is durable";
        TailKeptOverCut = "tail-kept-over-cut", "a cut drops nothing from the tail";
        CutNotCounted = "cut-not-counted",
            "a cut does not enter the history of cuts: its header is that of a full segment's next";
        CountGivenTwice = "count-given-twice", "every cut gets the number of the first";
        TableTooShort = "table-too-short",
            "a reader does not ask a history for the oldest cut that is known by itself";
        MarkBeforeHeader = "mark-before-header",
            "a cut leaves its marks before the header of its segment is durable";
        MarkOnlyInCut = "mark-only-in-cut",
            "a cut leaves a mark in the segment that it cuts alone, and none in the old head";
        GapTooShort = "gap-too-short", "a salvage makes a gap of several records one too short";
        GapIsTheEnd = "gap-is-the-end", "a reader says of a lost record that it is not there yet";
        StopsAtGap = "stops-at-gap", "a reader does not go on behind a gap";
        HalfBatchKept = "half-batch-kept", "a salvage keeps what is left of a batch";
        HintBelieved = "hint-believed", "a reader believes what is published and does not look";
        LockFileRemoved = "lock-file-removed", "an opening removes the lock file that it finds";
        TrialForgetsSync = "trial-forgets-sync",
            "a trial of two durable ways leaves out the sync of the second one";
        TrialKeepsSlower = "trial-keeps-slower", "a trial of two durable ways keeps the slower one";
    }
}
