//! The messages of 0.3's `a2a.v1` as the model, and the model as those messages.
//!
//! What 0.3 cannot say is left out: the file name and media type of text and data, references to other tasks, tenants. Data
//! that is no object travels as `{"value": …}`.

mod card;
mod request;
mod task;
