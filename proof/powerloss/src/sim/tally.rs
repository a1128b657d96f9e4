//! What was looked at, in numbers.
//!
//! *Owns*: adding up. *May not touch*: what is looked at.

#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// States that were opened, read and compared.
    pub states: u64,
    /// States by how many crashes within a recovery led there.
    pub depths: [u64; 4],
    /// States with old bytes after the log's end.
    pub beneath: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        let Self { states, depths, beneath } = *other;
        self.states += states;
        self.beneath += beneath;
        self.depths.iter_mut().zip(depths).for_each(|(sum, depth)| *sum += depth);
    }
}
