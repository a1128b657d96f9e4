//! Which of several disks should carry the log.
//!
//! *Owns*: comparing the runs of several places, refusing those where nothing is durable, the
//! answer as text. *May not touch*: measuring (`command::disks` does, interleaved over all places).

use inkstone_io::Barriers;

use crate::finding::fastest_durable;
use crate::result::{Disk, Table, Verdict, Way};
use crate::site::Site;
use crate::stats::{ROUNDS_TO_JUDGE, relative_of_several};
use crate::warnings::too_fast;

/// What forbids a log in a place and is known before anything is measured.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// The part below it that is memory, if any.
    pub(crate) memory: Option<String>,
    /// Whether the mount is without barriers.
    pub(crate) no_barriers: bool,
}

impl Known {
    /// Of this place.
    pub(crate) fn of(site: &Site) -> Self {
        let no_barriers = site.capabilities.mount.barriers == Barriers::Off;
        Self { memory: site.memory.clone(), no_barriers }
    }
}

/// Judges the runs, one per place, with what was known of each.
pub(crate) fn judge(runs: &[Table], known: &[Known]) -> (String, Vec<Disk>) {
    let mut judged: Vec<(Disk, Option<&Way>)> =
        runs.iter().zip(known).map(|(run, known)| one(run, known)).collect();
    let time = |(disk, _): &(Disk, Option<&Way>)| match disk.refused {
        None => disk.per_commit_ns.unwrap_or(f64::INFINITY),
        Some(_) => f64::INFINITY,
    };
    judged.sort_by(|a, b| time(a).total_cmp(&time(b)));
    if let Some(((first, best), rest)) = judged.split_first_mut()
        && let (None, Some(best)) = (&first.refused, best)
    {
        let questions = rest.len();
        for (disk, other) in rest.iter_mut().filter(|(disk, _)| disk.refused.is_none()) {
            disk.relative =
                other.and_then(|other| relative_of_several(&best.rounds, &other.rounds, questions));
            // Fewer rounds have figures and no verdict.
            if let Some(found) = &mut disk.relative
                && best.rounds.len() < ROUNDS_TO_JUDGE
            {
                found.verdict = Verdict::CannotTell;
            }
        }
    }
    let disks: Vec<Disk> = judged.into_iter().map(|(disk, _)| disk).collect();
    (sentence(&disks), disks)
}

fn one<'a>(run: &'a Table, known: &Known) -> (Disk, Option<&'a Way>) {
    let best = fastest_durable(run);
    let device = run.place.device.as_deref().unwrap_or("its device");
    let refused = if let Some(memory) = &known.memory {
        Some(format!("it is memory ({memory}), and nothing there survives a power loss"))
    } else if known.no_barriers {
        Some(
            "it is mounted without barriers, so a sync does not reach the medium; mount it with \
             barrier=1"
                .into(),
        )
    } else if let Some((way, took_ns)) = too_fast(run) {
        Some(format!(
            "{device} reports a volatile cache, yet `{way}` makes a write durable in {:.1} us: no \
             medium behind a cache \
             is that fast, so something below lies about flushes",
            took_ns as f64 / 1000.0
        ))
    } else if best.is_none() {
        Some("no durable way could be measured there".into())
    } else {
        None
    };
    let disk = Disk {
        directory: run.place.name.clone(),
        device: run.place.device.clone(),
        refused,
        best: best.map(|best| best.name.clone()),
        per_commit_ns: best.and_then(Way::per_operation_ns),
        relative: None,
    };
    (disk, best)
}

fn sentence(disks: &[Disk]) -> String {
    let usable: Vec<&Disk> = disks.iter().filter(|disk| disk.refused.is_none()).collect();
    let us = |disk: &Disk| disk.per_commit_ns.unwrap_or(f64::NAN) / 1000.0;
    let refused = disks
        .iter()
        .filter_map(|disk| Some(format!(" Not {}: {}.", disk.directory, disk.refused.as_ref()?)));
    let refused: String = refused.collect();
    let Some((first, others)) = usable.split_first() else {
        return format!("None of these should carry a log.{refused}");
    };
    let way = first.best.as_deref().unwrap_or_default();
    let beside = |disk: &&Disk| {
        let (other, Some(found)) = (&disk.directory, disk.relative.map(|one| one.turned())) else {
            return format!("; {} could not be compared", disk.directory);
        };
        let (times, interval) = (found.speedup, found.interval_words());
        match found.verdict {
            Verdict::Faster => format!("; {times:.2} times as fast as {other} ({interval})"),
            Verdict::Tie => format!("; a tie with {other} ({interval})"),
            _ => format!("; not told from {other} ({interval})"),
        }
    };
    let beside: String = others.iter().map(beside).collect();
    let (directory, us) = (&first.directory, us(first));
    let is_behind =
        |disk: &&Disk| disk.relative.is_some_and(|found| found.turned().verdict == Verdict::Faster);
    let advice = match others.iter().all(is_behind) {
        true => format!("Put the log on {directory}:"),
        false => format!("No disk is shown to be faster than all others. {directory} has"),
    };
    format!(
        "{advice} {us:.0} us per durable commit (`{way}`){beside}.{}{refused}",
        same_device(&usable)
    )
}

fn same_device(disks: &[&Disk]) -> String {
    for (index, disk) in disks.iter().enumerate() {
        let same = disks[index + 1..]
            .iter()
            .find(|other| disk.device.is_some() && other.device == disk.device);
        if let (Some(other), Some(device)) = (same, &disk.device) {
            return format!(
                " {} and {} are on the same device, {device}.",
                disk.directory, other.directory
            );
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::{run, way};
    use crate::result::{DurableFinding, Unit};

    fn place(name: &str, us: f64) -> Table {
        let seen = || DurableFinding::Seen { commits: 10 };
        let mut run =
            run(vec![way("new fsync", us * 2.0, seen()), way("reuse fdatasync", us, seen())]);
        run.place.name = name.into();
        run.place.device = Some(format!("disk-of-{name}"));
        run.place.write_cache = Some("write back".into());
        run
    }

    fn none(count: usize) -> Vec<Known> {
        vec![Known::default(); count]
    }

    #[test]
    fn the_faster_disk_is_named_and_equal_ones_cannot_be_told_apart() {
        let (sentence, disks) = judge(&[place("/slow", 300.0), place("/fast", 100.0)], &none(2));
        assert!(
            sentence.starts_with("Put the log on /fast: 100 us")
                || sentence.starts_with("Put the log on /fast: 101 us"),
            "{sentence}"
        );
        assert!(sentence.contains("3.00 times as fast as /slow"), "{sentence}");
        assert_eq!(disks[0].directory, "/fast");
        let (sentence, _) =
            judge(&[place("/a", 100.0), place("/b", 101.0), place("/c", 900.0)], &none(3));
        assert!(sentence.starts_with("No disk is shown to be faster than all"), "{sentence}");
        assert!(sentence.contains("; a tie with /b (95%"), "{sentence}");
        assert!(sentence.contains(" times as fast as /c (95%"), "{sentence}");
        let mut few = [place("/slow", 300.0), place("/fast", 100.0)];
        few.iter_mut().flat_map(|run| &mut run.ways).for_each(|way| way.rounds.truncate(11));
        let (sentence, _) = judge(&few, &none(2));
        assert!(sentence.contains("; not told from /slow (95%"), "{sentence}");
        let mut same = [place("/a", 100.0), place("/b", 300.0)];
        same[1].place.device = same[0].place.device.clone();
        assert!(
            judge(&same, &none(2)).0.contains("on the same device, disk-of-/a"),
            "the same disk"
        );
    }

    #[test]
    fn what_is_not_durable_is_never_recommended_however_fast() {
        let memory = Known { memory: Some("zram0".into()), ..Known::default() };
        let open = Known { no_barriers: true, ..Known::default() };
        let runs = [place("/ram", 1.0), place("/nobarrier", 20.0), place("/disk", 500.0)];
        let (sentence, disks) = judge(&runs, &[memory, open, Known::default()]);
        assert!(sentence.starts_with("Put the log on /disk: 50"), "{sentence}");
        assert!(sentence.contains("Not /ram: it is memory (zram0)"), "{sentence}");
        assert!(sentence.contains("Not /nobarrier: it is mounted without barriers"), "{sentence}");
        assert_eq!((disks[0].directory.as_str(), disks[1].refused.is_some()), ("/disk", true));
        // A sync of 4 us behind a volatile cache, and the same where the device has none.
        let mut liar = place("/liar", 6.0);
        for way in &mut liar.ways {
            way.figures = vec![crate::result::figure("sync p50", Unit::Ns, 4_000.0)];
        }
        let (sentence, _) = judge(&[liar.clone(), place("/disk", 500.0)], &none(2));
        assert!(
            sentence.starts_with("Put the log on /disk") && sentence.contains("lies about flushes"),
            "{sentence}"
        );
        liar.place.write_cache = Some("write through".into());
        let (sentence, _) = judge(&[liar, place("/disk", 500.0)], &none(2));
        assert!(sentence.starts_with("Put the log on /liar"), "{sentence}");
        let (sentence, _) = judge(
            &[place("/ram", 1.0)],
            &[Known { memory: Some("tmpfs".into()), ..Known::default() }],
        );
        assert!(sentence.starts_with("None of these should carry a log. Not /ram"), "{sentence}");
    }
}
