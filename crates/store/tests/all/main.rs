//! Every test of the store that uses it from outside.

#![allow(clippy::unwrap_used, reason = "a test may stop where it fails")]

mod conformance;
mod faulty;
mod model;
mod outside;
mod peers;
mod people;
mod pushes;
mod sqlite;
