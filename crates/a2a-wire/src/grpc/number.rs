//! JSON numbers as doubles: how a double is written, and whether a text has the same value.

/// Below this, every whole double is written with all its digits.
const WHOLE: f64 = 1e21;

/// A number for comparison: its digits without leading and trailing zeros, and the exponent of the last digit.
#[derive(PartialEq, Eq)]
struct NormalizedDecimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

/// The nearest finite double, and whether it equals the number in the text.
pub(super) fn read(digits: &str) -> (f64, bool) {
    let number = digits.parse::<f64>().unwrap_or_default().clamp(f64::MIN, f64::MAX);
    if digits.len() <= 15 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return (number, true);
    }
    let written = text(number).and_then(|text| NormalizedDecimal::of(&text));
    (number, written.is_some() && written == NormalizedDecimal::of(digits))
}

/// The JSON text. Whole numbers have no fraction. `None` for non-finite numbers.
pub(super) fn text(number: f64) -> Option<String> {
    if !number.is_finite() {
        None
    } else if number.fract() == 0.0 && number.abs() < WHOLE {
        Some(format!("{number:.0}"))
    } else {
        Some(format!("{number:?}"))
    }
}

// === impl NormalizedDecimal ===

impl NormalizedDecimal {
    /// `None` for an exponent that is out of range.
    fn of(text: &str) -> Option<Self> {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0').trim_end_matches('0');
        if digits.is_empty() {
            return Some(Self { negative, digits: String::new(), exponent: 0 });
        }
        let zeros = all.len() - all.trim_end_matches('0').len();
        let exponent: i64 = exponent.parse().ok()?;
        let shift = i64::try_from(zeros).ok()? - i64::try_from(fraction.len()).ok()?;
        Some(Self { negative, digits: digits.to_owned(), exponent: exponent.checked_add(shift)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_spelling_of_a_number_is_exact_and_another_number_is_not() {
        for same in
            ["42", "42.0", "4.2e1", "-0", "0.10", "1E2", "1e300", "0e999", "9007199254740992", "1152921504606846976"]
        {
            assert!(read(same).1, "{same}");
        }
        for lost in ["9007199254740993", "1e400", "-1e400", "1e-400", "0.1000000000000000055", "1e99999999999999999999"]
        {
            assert!(!read(lost).1, "{lost}");
        }
        assert_eq!(read("1e400").0, f64::MAX);
    }

    #[test]
    fn whole_numbers_have_no_fraction() {
        let written = [42.0, -0.0, 0.5, 1e20, 1e21, 5e-324, f64::NAN, f64::INFINITY].map(text);
        let wanted = ["42", "-0", "0.5", "100000000000000000000", "1e21", "5e-324"].map(|text| Some(text.to_owned()));
        assert_eq!(written[..6], wanted);
        assert_eq!(written[6..], [None, None]);
    }
}
