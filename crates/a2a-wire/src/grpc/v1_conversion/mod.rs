//! Conversion between the messages of `lf.a2a.v1` and the model.

mod card;
mod push;
mod request;
mod task;
