//! Conversion between the messages of 0.3's `a2a.v1` and the model.
//!
//! 0.3 can't represent the file name and media type of text and data, references to other tasks, or tenants. They are
//! omitted. Data that is not an object is sent as `{"value": …}`.

mod card;
mod request;
mod task;
