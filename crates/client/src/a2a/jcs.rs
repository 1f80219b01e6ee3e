//! Canonical JSON (RFC 8785), so that a signature can be verified whatever way the text was written.

use std::fmt::Write as _;

use attache_protocol::{
    Json,
    json::{self, Members},
};

/// Why a text has no canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalFormError {
    #[error("an object has a duplicate member, which JSON parsers treat differently")]
    Twice,
    #[error("it has a number that doesn't fit into a double")]
    Number,
    #[error("it has text that isn't valid Unicode")]
    Text,
    #[error("it is nested too deeply")]
    Depth,
    #[error("it isn't an object")]
    NoObject,
}

/// How to treat empty members: `null`, and empty strings, arrays and objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyMembers {
    Kept,
    /// Some signers drop them first, including members that become empty that way.
    Dropped,
}

/// The canonical form of a JSON text.
pub fn canonical(text: &Json) -> Result<String, CanonicalFormError> {
    let mut out = String::with_capacity(text.get().len());
    check_depth(text)?;
    write(text, &mut out)?;
    Ok(out)
}

/// The canonical form of an object without one of its members.
pub fn canonical_without(object: &Json, member: &str, empties: EmptyMembers) -> Result<String, CanonicalFormError> {
    check_depth(object)?;
    let Members(members) = object.parse::<Members>().map_err(|_| CanonicalFormError::NoObject)?;
    let rest: Vec<_> = members.into_iter().filter(|(name, _)| name != member).collect();
    let rest = Json::of(&Members(rest));
    match empties {
        EmptyMembers::Kept => canonical(&rest),
        EmptyMembers::Dropped => canonical(&without_empties(&rest)?.unwrap_or_else(Json::empty_object)),
    }
}

fn check_depth(text: &Json) -> Result<(), CanonicalFormError> {
    if json::depth(text.get().as_bytes()) > json::MAX_DEPTH { Err(CanonicalFormError::Depth) } else { Ok(()) }
}

fn write(text: &Json, out: &mut String) -> Result<(), CanonicalFormError> {
    match text.get().as_bytes().first() {
        Some(b'{') => {
            let members = text.parse::<Members>().map_err(|_| CanonicalFormError::Text)?;
            if !members.are_distinct() {
                return Err(CanonicalFormError::Twice);
            }
            let Members(mut members) = members;
            members.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            out.push('{');
            for (index, (name, value)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(name, out);
                out.push(':');
                write(value, out)?;
            }
            out.push('}');
        }
        Some(b'[') => {
            let entries: Vec<Json> = text.parse().map_err(|_| CanonicalFormError::Text)?;
            out.push('[');
            for (index, entry) in entries.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(entry, out)?;
            }
            out.push(']');
        }
        Some(b'"') => write_text(&text.parse::<String>().map_err(|_| CanonicalFormError::Text)?, out),
        Some(b'-' | b'0'..=b'9') => write_number(text.get(), out)?,
        // `true`, `false` and `null` have only one form.
        _ => out.push_str(text.get()),
    }
    Ok(())
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(Json::of(text).get());
}

/// ECMAScript number formatting: the shortest digits that identify the double, with an exponent if it would be long.
fn write_number(text: &str, out: &mut String) -> Result<(), CanonicalFormError> {
    let number: f64 = text.parse().map_err(|_| CanonicalFormError::Number)?;
    if !number.is_finite() {
        return Err(CanonicalFormError::Number);
    }
    if number == 0.0 {
        out.push('0');
        return Ok(());
    }
    let shortest = shortest(number);
    let (digits, exponent) = shortest.split_once('e').ok_or(CanonicalFormError::Number)?;
    let exponent: i32 = exponent.parse().map_err(|_| CanonicalFormError::Number)?;
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let digits: String = digits.chars().filter(|digit| *digit != '.').collect();
    out.push_str(sign);
    let zeros = |out: &mut String, count: usize| out.extend(std::iter::repeat_n('0', count));
    match usize::try_from(exponent) {
        Ok(above) if above < 21 && digits.len() <= above + 1 => {
            out.push_str(&digits);
            zeros(out, above + 1 - digits.len());
        }
        Ok(above) if above < 21 => {
            let (whole, fraction) = digits.split_at(above + 1);
            let _ = write!(out, "{whole}.{fraction}");
        }
        Err(_) if exponent >= -6 => {
            out.push_str("0.");
            zeros(out, usize::try_from(-exponent - 1).unwrap_or(0));
            out.push_str(&digits);
        }
        Ok(_) | Err(_) => {
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            let _ = write!(out, "{first}{point}{rest}e{exponent:+}");
        }
    }
    Ok(())
}

/// The shortest digits that identify the number, as `1.5e3`. Ties go to the even digit, where the standard library and
/// ECMAScript differ.
fn shortest(number: f64) -> String {
    let shortest = format!("{number:e}");
    let precision = shortest.split_once('e').map_or(0, |(digits, _)| digits.trim_start_matches('-').len());
    let even = format!("{number:.*e}", precision.saturating_sub(2));
    if even.parse() == Ok(number) { even } else { shortest }
}

/// `None` for a value that is empty, or becomes empty.
fn without_empties(text: &Json) -> Result<Option<Json>, CanonicalFormError> {
    Ok(match text.get() {
        "null" | r#""""# => None,
        object if object.starts_with('{') => {
            let Members(members) = text.parse::<Members>().map_err(|_| CanonicalFormError::Text)?;
            let mut kept = Vec::new();
            for (name, value) in members {
                if let Some(value) = without_empties(&value)? {
                    kept.push((name, value));
                }
            }
            (!kept.is_empty()).then(|| Json::of(&Members(kept)))
        }
        list if list.starts_with('[') => {
            let mut kept = Vec::new();
            for entry in text.parse::<Vec<Json>>().map_err(|_| CanonicalFormError::Text)? {
                kept.extend(without_empties(&entry)?);
            }
            (!kept.is_empty()).then(|| Json::of(&kept))
        }
        _ => Some(text.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Result<String, CanonicalFormError> {
        canonical(&Json::from_text(text).unwrap())
    }

    #[test]
    fn the_examples_of_the_standard_match() {
        let text = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let wanted = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(form(text).as_deref(), Ok(wanted));
        let names = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
        let wanted = "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}";
        assert_eq!(form(names).as_deref(), Ok(wanted), "sorted by UTF-16, where an emoji comes before U+FB33");
    }

    #[test]
    fn numbers_are_formatted_as_in_ecmascript() {
        // The bit patterns from the appendix of RFC 8785.
        for (bits, wanted) in [
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            let number = f64::from_bits(bits);
            assert_eq!(form(&format!("{number:?}")).as_deref(), Ok(wanted), "{bits:x}");
        }
        for (text, wanted) in [("-0", "0"), ("42.0", "42"), ("9007199254740993", "9007199254740992"), ("1E2", "100")] {
            assert_eq!(form(text).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn ambiguous_json_has_no_canonical_form() {
        assert_eq!(form(r#"{"a":{"b":1,"\u0062":2}}"#), Err(CanonicalFormError::Twice));
        assert_eq!(form("[1e400]"), Err(CanonicalFormError::Number));
        assert_eq!(form(r#"["\ud800"]"#), Err(CanonicalFormError::Text));
        assert_eq!(form(&format!("{}{}", "[".repeat(65), "]".repeat(65))), Err(CanonicalFormError::Depth));
        assert_eq!(canonical_without(&Json::of("x"), "a", EmptyMembers::Kept), Err(CanonicalFormError::NoObject));
    }

    #[test]
    fn a_member_and_optionally_empty_ones_are_dropped() {
        let card = Json::from_text(
            r#"{"signatures":[1],"b":{"c":[{"d":""}],"e":null},"a":[],"f":false,"g":[0,{}],"signature":"s"}"#,
        )
        .unwrap();
        assert_eq!(
            canonical_without(&card, "signatures", EmptyMembers::Kept).as_deref(),
            Ok(r#"{"a":[],"b":{"c":[{"d":""}],"e":null},"f":false,"g":[0,{}],"signature":"s"}"#)
        );
        let dropped = canonical_without(&card, "signatures", EmptyMembers::Dropped);
        assert_eq!(dropped.as_deref(), Ok(r#"{"f":false,"g":[0],"signature":"s"}"#));
    }
}
