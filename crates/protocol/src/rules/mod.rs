//! Pure rules: `(state, command, now) -> transition | refusal`. No I/O, no clock, no randomness.

pub mod access;
pub mod assignment;
pub mod command_pattern;
pub mod delegation;
pub mod permission;
pub mod permission_mode;
pub mod quota;
pub mod recovery;
pub mod retention;
pub mod run;
pub mod staging;
