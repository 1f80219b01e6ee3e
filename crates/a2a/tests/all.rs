//! The A2A surface, tested from outside.

#![allow(clippy::disallowed_methods, reason = "tests build and compare JSON as values")]

mod cards;
