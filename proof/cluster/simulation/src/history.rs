//! What clients asked and heard: the words that they write down and that the checkers read.
//!
//! *Owns*: the types. *May not touch*: judging, asking.

use std::sync::{Arc, Mutex};

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Append this piece, which nobody else appends.
    Append(String),
    /// All pieces.
    Read,
    /// Put this value, which nobody else puts.
    Put(String),
    /// The value.
    Get,
}

/// What was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// The append is done; so many pieces were there with it.
    Appended(u64),
    /// The pieces.
    Pieces(Vec<String>),
    /// The put is done; it is the entry with this index.
    Put(u64),
    /// The value, if there is one.
    Value(Option<String>),
    /// It certainly did not happen.
    NotDone,
    /// It may have happened.
    Unknown,
}

/// One call of a client.
#[derive(Debug, Clone)]
pub struct Operation {
    /// On which key.
    pub key: String,
    /// What was asked.
    pub asked: Asked,
    /// When: a place among all events.
    pub begun: u64,
    /// When the answer came, and what it was.
    pub heard: (u64, Heard),
}

/// What all clients have written down. Clones are the same.
pub type History = Arc<Mutex<Vec<Operation>>>;
