//! The pure part, on events made by hand.
