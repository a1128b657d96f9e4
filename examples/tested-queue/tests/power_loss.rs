//! The promise of the queue, and its four faults, each found by the driver that
//! docs/powerloss.md names.

use std::path::Path;
use std::sync::Mutex;

use example_tested_queue::{Fault, Queue};
use inkstone_powerloss::Verdict::{Lost, Survived};
use inkstone_powerloss::{Crash, Lines, Played, Verdict, test};

/// Two threads push and take. Whoever takes says so while nobody else can take.
fn write(directory: &Path, fault: Option<Fault>, lines: &mut Lines) -> Played {
    let (queue, lines) = (Queue::open(directory, fault)?, Mutex::new(lines));
    let work = || -> anyhow::Result<()> {
        loop {
            queue.push(b"an item")?;
            let mut said = Ok(());
            queue.take(|number, _| {
                said = lines.lock().expect("no panic").say(format_args!("took {number}"));
            })?;
            said?;
        }
    };
    let done = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work().and(other.join().expect("no panic"))
    });
    Ok(done?)
}

/// What was handed out, as the next process knows it.
fn read(directory: &Path, lines: &mut Lines) -> Played {
    let taken = *Queue::open(directory, None)?.taken();
    (1..=taken).try_for_each(|number| lines.say(format_args!("took {number}")))?;
    Ok(())
}

/// What is said of a fault where the power is cut, and where the writer is killed only.
fn is_found(fault: Option<Fault>, cut: Verdict, killed: Verdict) {
    let report = test(|directory, lines| write(directory, fault, lines), read);
    let expected = if report.crash == Crash::PowerCut { cut } else { killed };
    assert_eq!(report.verdict, expected, "{report}");
}

#[test]
fn what_was_handed_out_is_never_handed_out_again() {
    is_found(None, Survived, Survived);
}

#[test]
fn a_missing_sync_is_found_by_a_power_cut_alone() {
    is_found(Some(Fault::MissingSync), Lost, Survived);
}

/// On ext4: on xfs and btrfs the sync of the next place brings the name along.
#[test]
fn a_lost_name_is_found_by_a_power_cut_alone() {
    is_found(Some(Fault::LostName), Lost, Survived);
}

#[test]
fn an_early_acknowledgement_is_found_by_a_power_cut_alone() {
    is_found(Some(Fault::EarlyAcknowledgement), Lost, Survived);
}

/// No crash is needed: whatever runs two takers meets it.
#[test]
fn a_race_is_found_by_both() {
    is_found(Some(Fault::Race), Lost, Lost);
}
