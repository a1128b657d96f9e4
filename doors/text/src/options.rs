//! The options of a log, from one text.
//!
//! *Owns*: their names, and what a value may be. *May not touch*: what they mean; the text log says
//! that, and checks them when it is opened.

use std::str::FromStr;
use std::time::Duration;

use inkstone_appender::{Builder, Compression, Keep, Rotation, Survive, WhenFull};

/// What several options make together.
#[derive(Default)]
struct Several {
    rotation: Rotation,
    keep: Keep,
    survive: Survive,
    sync_every: Option<Duration>,
}

/// Changes the log that will be opened, or says what the value must be.
type Change = fn(Builder, &mut Several, &str) -> Result<Builder, String>;

/// The head of the header says what each is.
const OPTIONS: [(&str, Change); 12] = [
    ("survive", |builder, several, value| {
        let (what, must) = value.strip_suffix('!').map_or((value, false), |what| (what, true));
        several.survive = match what {
            "nothing" if !must => Survive::Nothing,
            "kill" => Survive::Kill,
            "power-loss" => Survive::PowerLoss(Duration::from_secs(1)),
            _ => return Err("nothing, kill, kill!, power-loss or power-loss!".into()),
        };
        Ok(if must { builder.must_survive() } else { builder })
    }),
    ("sync_every_ms", |builder, several, value| {
        several.sync_every = Some(millis(value)?);
        Ok(builder)
    }),
    ("rotate_bytes", |builder, several, value| {
        several.rotation = several.rotation.at_bytes(number(value)?);
        Ok(builder)
    }),
    ("rotate_every_s", |builder, several, value| match number(value)? {
        // The text log takes the shortest period that it knows.
        0 => Err("1 or more".into()),
        seconds => {
            several.rotation = several.rotation.every(Duration::from_secs(seconds));
            Ok(builder)
        }
    }),
    ("keep_files", |builder, several, value| {
        several.keep = several.keep.files(number(value)?);
        Ok(builder)
    }),
    ("keep_days", |builder, several, value| {
        several.keep = several.keep.days(number(value)?);
        Ok(builder)
    }),
    ("compress", |builder, _, value| match value {
        "none" => Ok(builder.compress(Compression::None)),
        "gzip" => Ok(builder.compress(Compression::Gzip)),
        _ => Err("none or gzip".into()),
    }),
    ("drop_after_us", |builder, _, value| {
        let after = Duration::from_micros(number(value)?);
        Ok(builder.when_full(WhenFull::DropAfter(after)))
    }),
    ("flush_every_ms", |builder, _, value| Ok(builder.flush_every(millis(value)?))),
    ("close_ms", |builder, _, value| Ok(builder.drain_timeout(millis(value)?))),
    ("buffers_bytes", |builder, _, value| Ok(builder.buffers_bytes(number(value)?))),
    ("stage_directory", |builder, _, value| Ok(builder.stage_directory(value))),
];

fn number<N: FromStr>(value: &str) -> Result<N, String> {
    let bits = 8 * size_of::<N>();
    value.parse().map_err(|_| format!("a whole number from 0 that {bits} bits hold"))
}

fn millis(value: &str) -> Result<Duration, String> {
    Ok(Duration::from_millis(number(value)?))
}

/// Sets what the text says: words of the form NAME=VALUE.
pub(crate) fn set_all(mut builder: Builder, options: &str) -> Result<Builder, String> {
    let mut several = Several::default();
    for word in options.split_ascii_whitespace() {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let Some((_, change)) = OPTIONS.iter().find(|(known, _)| *known == name) else {
            let known = OPTIONS.map(|(name, _)| name).join(", ");
            return Err(format!("there is no option {name}: there are {known}"));
        };
        builder = change(builder, &mut several, value)
            .map_err(|fits| format!("{name}={value}: it must be {fits}"))?;
    }
    let Several { rotation, keep, survive, sync_every } = several;
    let survive = match (survive, sync_every) {
        (Survive::PowerLoss(default), every) => Survive::PowerLoss(every.unwrap_or(default)),
        (_, Some(_)) => return Err("sync_every_ms needs survive=power-loss".into()),
        (survive, None) => survive,
    };
    if keep != Keep::new() && rotation == Rotation::new() {
        return Err("keep_files and keep_days need rotate_bytes or rotate_every_s".into());
    }
    Ok(builder.survive(survive).rotate(rotation).keep(keep))
}

#[cfg(test)]
mod tests {
    use inkstone_appender::LogWriter;

    use super::*;

    #[test]
    fn the_header_says_what_each_name_is() {
        let header = include_str!("../include/inkstone_text.h");
        let listed = header.lines().filter_map(|line| {
            let (name, _) = line.strip_prefix(" *   ")?.split_once('=')?;
            name.bytes().all(|sign| sign == b'_' || sign.is_ascii_lowercase()).then_some(name)
        });
        assert!(listed.eq(OPTIONS.map(|(name, _)| name)));
    }

    #[test]
    fn a_period_of_nothing_is_no_way_to_say_never() {
        let set = |options| set_all(LogWriter::builder("app.log"), options).map(drop);
        assert_eq!(set("rotate_every_s=0"), Err("rotate_every_s=0: it must be 1 or more".into()));
        assert_eq!(set("rotate_every_s=1 rotate_every_s=86400"), Ok(()));
    }
}
