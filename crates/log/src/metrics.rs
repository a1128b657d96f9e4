//! The numbers of a log for the `metrics` facade (feature `metrics`).
//!
//! *Owns*: giving a [`Stats`] to the recorder that the program has installed. *May not touch*: what
//! is counted and under which name (`stats.rs`); the names are the same as for Prometheus.

use ::metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::stats::{COUNTS, GAUGES, QUANTILES, Stats, TIMES, Times};

impl Stats {
    /// Gives every number to the recorder of the `metrics` crate, with the label `log`. Call it as
    /// often as the numbers are collected, from any thread; it does not slow appending down.
    /// Counters are set to their value (`absolute`). Each histogram gives its quantiles as gauges
    /// in seconds with the label `quantile`, its sum and its count. Without a recorder nothing
    /// happens.
    pub fn publish(&self, log: &str) {
        let log = log.to_owned();
        for (name, help, value) in COUNTS {
            let name = format!("inkstone_{name}");
            describe_counter!(name.clone(), *help);
            counter!(name, "log" => log.clone()).absolute(value(self));
        }
        for (name, help, value) in GAUGES {
            let name = format!("inkstone_{name}");
            describe_gauge!(name.clone(), *help);
            gauge!(name, "log" => log.clone()).set(value(self) as f64);
        }
        for (name, help, times) in TIMES {
            publish_times(&format!("inkstone_{name}"), help, times(self), &log);
        }
    }
}

fn publish_times(name: &str, help: &'static str, times: &Times, log: &str) {
    describe_gauge!(name.to_owned(), help);
    for quantile in QUANTILES {
        let seconds = times.quantile_us(quantile) as f64 / 1e6;
        gauge!(name.to_owned(), "log" => log.to_owned(), "quantile" => quantile.to_string())
            .set(seconds);
    }
    gauge!(format!("{name}_sum"), "log" => log.to_owned()).set(times.sum_us() as f64 / 1e6);
    counter!(format!("{name}_count"), "log" => log.to_owned()).absolute(times.count());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use ::metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder,
        SharedString, Unit, with_local_recorder,
    };

    use super::*;

    type Seen = Arc<Mutex<BTreeMap<String, f64>>>;

    /// Writes down what it is given.
    #[derive(Default)]
    struct Notes(Seen);

    struct Note(Seen, String);

    impl Note {
        fn put(&self, value: f64) {
            self.0.lock().expect("nobody panics").insert(self.1.clone(), value);
        }
    }

    impl CounterFn for Note {
        fn increment(&self, _: u64) {
            panic!("a count is set as it stands");
        }

        fn absolute(&self, value: u64) {
            self.put(value as f64);
        }
    }

    impl GaugeFn for Note {
        fn increment(&self, _: f64) {
            panic!("a gauge is set");
        }

        fn decrement(&self, _: f64) {
            panic!("a gauge is set");
        }

        fn set(&self, value: f64) {
            self.put(value);
        }
    }

    impl Notes {
        fn note(&self, key: &Key) -> Arc<Note> {
            let labels: Vec<_> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            Arc::new(Note(Arc::clone(&self.0), format!("{}{{{}}}", key.name(), labels.join(","))))
        }
    }

    impl Recorder for Notes {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.note(key))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.note(key))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            panic!("what was counted elsewhere is not recorded twice");
        }
    }

    /// The recorder is given what the text for Prometheus says, name by name.
    #[test]
    fn the_recorder_sees_what_prometheus_sees() {
        let mut stats = Stats { records: 7, ready: 2, ..Stats::default() };
        stats.commit.add(Duration::from_micros(1500));
        let notes = Notes::default();
        with_local_recorder(&notes, || stats.publish("orders"));
        let mut seen = BTreeMap::new();
        for line in stats.prometheus("orders").lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            seen.insert(name.replace('"', ""), value.parse().expect("a number"));
        }
        assert_eq!(*notes.0.lock().expect("nobody panics"), seen);
    }
}
