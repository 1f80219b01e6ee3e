//! A2A over gRPC: messages and services of 1.0 and 0.3, and their conversion to and from the model.
//!
//! The `.proto` files are in `crates/a2a-wire/proto`. The generated code is committed, so that a build needs no
//! protobuf compiler.

/// Messages and service of 1.0, the package `lf.a2a.v1`.
#[allow(clippy::all, clippy::use_self, clippy::unwrap_used, missing_debug_implementations, unreachable_pub)]
#[path = "gen/lf_a2a_v1.rs"]
#[rustfmt::skip]
pub mod v1;

/// Messages and service of 0.3, the package `a2a.v1`.
#[allow(clippy::all, clippy::use_self, clippy::unwrap_used, missing_debug_implementations, unreachable_pub)]
#[path = "gen/a2a_v1.rs"]
#[rustfmt::skip]
pub mod v03;

mod exact_json;
mod number;
mod scheme;
mod shared;
mod v03_conversion;
mod v1_conversion;
mod value;
mod weight;

pub use exact_json::EXACT;
pub use weight::{MalformedMessage, decoded_weight};

use attache_protocol::{Json, Timestamp};
use prost_types::Struct;

use super::invalid_field::{InvalidField, WithinField as _};

/// Placeholder for bytes that are not valid base64.
const NOT_BASE64: &str = "The bytes of this part are not base64, so gRPC can't carry them.";

/// Proto3 has no absent string: empty means absent.
fn text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Proto3 has no absent bool: false means absent.
const fn truth(truth: bool) -> Option<bool> {
    if truth { Some(true) } else { None }
}

const fn count(count: i32) -> Option<i32> {
    if count == 0 { None } else { Some(count) }
}

fn required<A, B: TryFrom<A, Error = InvalidField>>(name: &str, field: Option<A>) -> Result<B, InvalidField> {
    optional(name, field)?.ok_or_else(|| InvalidField::new(name, "is missing"))
}

fn optional<A, B: TryFrom<A, Error = InvalidField>>(name: &str, field: Option<A>) -> Result<Option<B>, InvalidField> {
    field.map(B::try_from).transpose().within(name)
}

fn list<A, B: TryFrom<A, Error = InvalidField>>(name: &str, items: Vec<A>) -> Result<Vec<B>, InvalidField> {
    let convert = |(index, item)| B::try_from(item).within(format_args!("{name}[{index}]"));
    items.into_iter().enumerate().map(convert).collect()
}

/// Converts a list. Our own messages can always be written.
fn written<A, B: From<A>>(items: Vec<A>) -> Vec<B> {
    items.into_iter().map(B::from).collect()
}

/// A list that is absent if empty.
fn some_list<A, B: TryFrom<A, Error = InvalidField>>(
    name: &str,
    items: Vec<A>,
) -> Result<Option<Vec<B>>, InvalidField> {
    let items = list(name, items)?;
    Ok((!items.is_empty()).then_some(items))
}

fn write_time(time: Timestamp) -> prost_types::Timestamp {
    let (seconds, millis) = (time.millis().div_euclid(1000), time.millis().rem_euclid(1000));
    let nanos = i32::try_from(millis).expect("a second has a thousand milliseconds") * 1_000_000;
    prost_types::Timestamp { seconds, nanos }
}

fn read_time(name: &str, time: prost_types::Timestamp) -> Result<Timestamp, InvalidField> {
    let millis =
        time.seconds.checked_mul(1000).and_then(|millis| millis.checked_add(i64::from(time.nanos / 1_000_000)));
    // The range of seconds that RFC 3339 can write.
    match millis {
        Some(millis) if (-62_135_596_800_000..=253_402_300_799_999).contains(&millis) && time.nanos >= 0 => {
            Ok(Timestamp::from_millis(millis))
        }
        _ => Err(InvalidField::new(name, "is not a valid time")),
    }
}

/// A card's JSON object. Cards have no metadata, so what gRPC can't carry is lost.
fn write_object(json: Option<Json>) -> Option<Struct> {
    match value::read(&json?).ok()?.value.kind {
        Some(prost_types::value::Kind::StructValue(object)) => Some(object),
        _ => None,
    }
}

fn read_object(name: &str, object: Option<Struct>) -> Result<Option<Json>, InvalidField> {
    let json = object.map(|object| value::write_object(&object.fields)).transpose();
    json.map_err(|problem| InvalidField::new(name, problem))
}

#[cfg(test)]
mod tests;
