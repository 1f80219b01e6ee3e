//! Every test of the store that uses it from outside.

mod conformance;
mod faulty;
mod model;
mod sqlite;
