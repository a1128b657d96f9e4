//! The plain ways in which programs write files, without any log: what each loses when the power is
//! cut, on which file system.
//!
//! *Owns*: these ways, what each claims, and the verdict, which comes from checking crash states
//! and from nothing else. *May not touch*: how disks, file systems and crash states are made
//! (`kernel`).
//!
//! | module | |
//! |---|---|
//! | [`plain`] | the strategies: what each does, step by step, and what it may claim |
//! | [`trial`], [`writer`], [`record`] | one run of a strategy, the process that does it, recording it |
//! | [`content`] | the bytes of each step, and what is left of them |
//! | [`moment`] | when the power is cut, and what reaches the medium |
//! | [`run`], [`report`] | all of it; the rows, the table, the certificates |

pub mod content;
pub mod moment;
pub mod plain;
pub mod record;
pub mod report;
pub mod run;
pub mod trial;
pub mod writer;
