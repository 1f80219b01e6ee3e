//! A client of any A2A agent: finds its card, decides whether the card is to be believed, and speaks the version and the
//! binding that the card offers. Every call goes through the egress guard.

pub mod jcs;
pub mod verify;
