//! Delegations from end to end: a folder is lent, worked in and taken back, whatever happens in between.

mod attacks;
mod edits;
mod failures;
mod lifecycle;
mod networks;
mod tools;
pub mod world;
