//! The A2A surface, tested from outside.
