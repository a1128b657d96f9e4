//! How records become durable, many with one flush.
//!
//! *Owns*: the gathering, the turn, the writer, the watermark, waiting and waking. *May not touch*:
//! which segment comes next.

pub(crate) mod callbacks;
pub(crate) mod following;
pub(crate) mod futures;
pub(crate) mod gathering;
pub(crate) mod group;
pub(crate) mod post;
pub(crate) mod retiring;
pub(crate) mod room;
pub(crate) mod rule;
pub(crate) mod shared;
pub(crate) mod sleepers;
pub(crate) mod state;
pub(crate) mod turn;
pub(crate) mod wait;
pub(crate) mod waking;
pub(crate) mod watchers;
pub(crate) mod watching;
pub(crate) mod writer;
pub(crate) mod yielding;
