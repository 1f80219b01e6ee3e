//! Amounts of money, as people type them.

use attache_protocol::Json;

/// A number of dollars, to the digit.
pub(crate) fn dollars(text: &str) -> Result<Json, String> {
    let number = Json::from_text(text).ok().filter(|json| json.parse::<f64>().is_ok_and(|number| number >= 0.0));
    number.ok_or_else(|| "a number of dollars, like 0.5".to_owned())
}
