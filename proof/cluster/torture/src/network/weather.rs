//! What happens to a packet on its way: from which host to which it goes, how many are lost, late
//! or doubled.
//!
//! *Owns*: the table of ways, and the draw for one packet. *May not touch*: devices, packets.

use std::time::Duration;

/// The way from one host to another; the way back is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Nothing passes.
    pub is_cut: bool,
    /// Of a hundred packets this many are lost.
    pub lost_percent: u8,
    /// Of a hundred packets this many arrive twice.
    pub twice_percent: u8,
    /// Each packet is late by a time between these, drawn for itself: so a later one may arrive
    /// first.
    pub late: (Duration, Duration),
}

impl Way {
    /// Everything passes at once.
    pub const CLEAR: Self = Self {
        is_cut: false,
        lost_percent: 0,
        twice_percent: 0,
        late: (Duration::ZERO, Duration::ZERO),
    };
}

#[derive(Debug, Clone)]
pub struct Weather {
    hosts: usize,
    ways: Vec<Way>,
    /// Hosts without power: nothing leaves or reaches them, whatever the ways are.
    dark: Vec<bool>,
}

impl Weather {
    /// Clear ways among this many hosts.
    pub fn clear(hosts: usize) -> Self {
        Self { hosts, ways: vec![Way::CLEAR; hosts * hosts], dark: vec![false; hosts] }
    }

    pub fn way(&mut self, from: usize, to: usize) -> &mut Way {
        &mut self.ways[from * self.hosts + to]
    }

    /// All ways are clear again. A dark host stays dark.
    pub fn clear_ways(&mut self) {
        self.ways.fill(Way::CLEAR);
    }

    /// A host loses power or gets it back.
    pub fn set_dark(&mut self, host: usize, is_dark: bool) {
        self.dark[host] = is_dark;
    }

    /// Cuts both ways between two hosts.
    pub fn part(&mut self, one: usize, other: usize) {
        self.way(one, other).is_cut = true;
        self.way(other, one).is_cut = true;
    }

    /// After how long a packet arrives, and once more; nothing if it is lost.
    pub fn arrivals(
        &self,
        from: usize,
        to: usize,
        rng: &mut fastrand::Rng,
    ) -> [Option<Duration>; 2] {
        let way = &self.ways[from * self.hosts + to];
        let is_lost =
            way.is_cut || self.dark[from] || self.dark[to] || rng.u8(..100) < way.lost_percent;
        if is_lost {
            return [None; 2];
        }
        let (least, most) = (way.late.0.as_micros() as u64, way.late.1.as_micros() as u64);
        let mut late = || Duration::from_micros(rng.u64(least..=most.max(least)));
        let first = late();
        let second = late();
        [Some(first), (rng.u8(..100) < way.twice_percent).then_some(second)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_two_directions_and_draws_keep_to_the_odds() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut weather = Weather::clear(3);
        weather.way(0, 1).is_cut = true;
        weather.part(1, 2);
        let late = (Duration::from_millis(1), Duration::from_millis(3));
        *weather.way(0, 2) = Way { is_cut: false, lost_percent: 10, twice_percent: 20, late };
        let mut draws = |from, to| {
            let all: Vec<_> = (0..1000).map(|_| weather.arrivals(from, to, &mut rng)).collect();
            let count = |times| all.iter().filter(move |one| one.iter().flatten().count() == times);
            (count(0).count(), count(2).count())
        };
        let ways = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0)];
        let all = ways.map(|(from, to)| draws(from, to));
        assert_eq!(all, [(1000, 0), (0, 0), (1000, 0), (1000, 0), (0, 0)]);
        let (lost, twice) = draws(0, 2);
        assert!((60..140).contains(&lost) && (130..230).contains(&twice), "{lost}, {twice}");
        weather.clear_ways();
        weather.set_dark(2, true);
        let ways = [(1, 2), (2, 1), (0, 1)];
        let arrivals = ways.map(|(from, to)| weather.arrivals(from, to, &mut rng));
        assert_eq!(arrivals, [[None; 2], [None; 2], [Some(Duration::ZERO), None]]);
    }
}
