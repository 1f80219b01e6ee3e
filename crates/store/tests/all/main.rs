//! Every test of the store that uses it from outside.

#![allow(clippy::unwrap_used, reason = "a test may stop where it fails")]

mod conformance;
mod faulty;
mod migrate;
mod model;
mod outside;
mod peers;
mod people;
mod postgres;
mod pushes;
mod several_writers;
mod sqlite;
mod worktrees;
