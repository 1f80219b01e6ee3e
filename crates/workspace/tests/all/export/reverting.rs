//! What a lease changed, told and taken back.
