//! Pure rules: `(state, command, now) -> transition | refusal`. No I/O, no clock, no randomness.

pub mod run;
