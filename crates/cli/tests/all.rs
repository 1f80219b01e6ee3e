//! The command line from outside: the real binaries in processes of their own, each with a home folder of its own.
//!
//! A new suite is a file beside this one and a `mod` line here; `tidy` fails when a file was forgotten.

mod harness;

mod basics;
mod tidy;
