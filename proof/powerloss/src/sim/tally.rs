//! What was looked at, in numbers.
//!
//! *Owns*: adding up. *May not touch*: what is looked at.

#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// States that were opened, read and compared.
    pub states: u64,
    /// States that were made and found equal to an opened one.
    pub covered: u64,
    /// Of these, the states that were opened all the same; they count as states too.
    pub reopened: u64,
    /// The binary logarithm of how many states the cuts allow.
    pub possible_log2: Option<f64>,
    /// States by how many crashes within a recovery led there.
    pub depths: [u64; 4],
    /// States with old bytes after the log's end.
    pub beneath: u64,
    /// Cuts of which every state was checked, or covered.
    pub exhausted: u64,
    pub cuts: u64,
}

impl Tally {
    pub fn add_possible(&mut self, log2: f64) {
        self.possible_log2 = Some(self.possible_log2.map_or(log2, |sum| log2_of_sum(sum, log2)));
    }

    pub fn add(&mut self, other: &Self) {
        let Self { states, covered, reopened, possible_log2, depths, beneath, exhausted, cuts } =
            *other;
        self.states += states;
        self.covered += covered;
        self.reopened += reopened;
        self.beneath += beneath;
        self.exhausted += exhausted;
        self.cuts += cuts;
        self.depths.iter_mut().zip(depths).for_each(|(sum, depth)| *sum += depth);
        possible_log2.into_iter().for_each(|log2| self.add_possible(log2));
    }
}

/// The binary logarithm of the sum of two numbers that are given by their logarithms.
pub(crate) fn log2_of_sum(left: f64, right: f64) -> f64 {
    let (low, high) = (left.min(right), left.max(right));
    high + (low - high).exp2().ln_1p() / std::f64::consts::LN_2
}
