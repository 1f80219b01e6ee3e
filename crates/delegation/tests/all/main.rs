//! The delegation daemon against a hub in this process.

#![allow(clippy::unwrap_used, reason = "a test that can't continue should stop")]
#![allow(clippy::disallowed_methods, reason = "`json!` builds what a test expects; nothing is relayed through it")]

mod delegator;
