//! Delegations end to end: a folder is delegated, worked in and revoked, whatever happens in between.

mod archives;
mod attacks;
mod copies;
mod edits;
mod failures;
mod lifecycle;
mod networks;
mod review;
mod staged;
mod tools;
pub mod world;
