//! The experiments of the articles by their numbers, E1 to E10.
//!
//! *Owns*: their names. *May not touch*: what is run for them: a claim says to which it belongs,
//! the command line which commands each consists of.
//!
//! The articles: 1, reading and writing files fast; 2, how to write a file faster; 3, fallocate in
//! detail; 4, a check of article 2; 5, a single machine's disk I/O.

inkstone_io::named_choice! {
    /// An experiment of the articles.
    Numbered, "experiment" {
        E1 = "e1", "Ways to write a durable log (articles 2 and 4)";
        E2 = "e2", "First and second pass, with a journal and without (article 1)";
        E3 = "e3", "What a durable write costs at the block layer (article 2)";
        E4 = "e4", "fallocate, mode by mode (article 3)";
        E5 = "e5", "A key-value store's log, with blocks reserved ahead and without (article 3)";
        E6 = "e6", "Ways of doing I/O, and a mixed load (article 5)";
        E7 = "e7", "A pool of threads that block (article 5)";
        E8 = "e8", "Reading fast (articles 1 and 5)";
        E9 = "e9", "A text log written by many threads (article 1)";
        E10 = "e10", "The practice: the next file prepared ahead or used again (article 2)";
    }
}
