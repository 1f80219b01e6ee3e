//! The messages of `lf.a2a.v1` as the model, and the model as those messages.

mod card;
mod push;
mod request;
mod task;
