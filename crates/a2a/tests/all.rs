//! The A2A surface, tested from outside.

#![allow(clippy::disallowed_methods, reason = "tests build and compare JSON as values")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]
#![allow(unreachable_pub, missing_debug_implementations, reason = "nobody uses a test from outside")]
#![allow(clippy::result_large_err, reason = "nothing in a test is in such a hurry")]

mod antipatterns;
mod cards;
mod delegation;
mod edges;
mod equivalence;
mod errors;
mod exact;
mod obedient;
mod parts;
mod peers;
mod push;
mod requirements;
mod restart;
mod scene;
mod speak;
mod strangers;
mod weight;
