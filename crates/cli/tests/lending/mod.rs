//! Delegations from end to end: a folder is lent, worked in and taken back, whatever happens in between.

mod attacks;
mod edits;
mod life;
mod nets;
mod tools;
mod trouble;
pub mod world;
