//! Formatting of calls, tokens and dollars.

use attache_protocol::{
    Json,
    rules::quota::{QuotaMeasure, micro_usd, usd},
};

use crate::text::Text;

pub(crate) const MEASURES: [QuotaMeasure; 3] = [QuotaMeasure::Calls, QuotaMeasure::Tokens, QuotaMeasure::Cost];

pub(crate) fn measure_label(measure: QuotaMeasure, t: &Text) -> &'static str {
    match measure {
        QuotaMeasure::Calls => t.calls,
        QuotaMeasure::Tokens => t.tokens,
        QuotaMeasure::Cost => t.cost,
    }
}

/// Formats an amount in full.
pub(crate) fn full(measure: QuotaMeasure, amount: u64) -> String {
    match measure {
        QuotaMeasure::Calls | QuotaMeasure::Tokens => count(amount),
        QuotaMeasure::Cost => money(amount),
    }
}

/// Formats an amount for an axis: `120`, `1.5 k`, `41 M`, `$2.50`, in the magnitudes of the catalogue.
pub(crate) fn brief(measure: QuotaMeasure, amount: u64, t: &Text) -> String {
    if measure == QuotaMeasure::Cost {
        return money(amount);
    }
    let mut magnitudes = t.magnitudes.split(' ');
    let step: u128 = magnitudes.next().and_then(|step| step.parse().ok()).unwrap_or(1_000);
    let (mut tenths, mut unit) = (u128::from(amount) * 10, String::new());
    while tenths >= step * 10
        && let Some(name) = magnitudes.next()
    {
        tenths /= step;
        unit = format!("\u{202f}{name}");
    }
    let (whole, rest) = (tenths / 10, tenths % 10);
    if rest == 0 || whole >= 100 { format!("{whole}{unit}") } else { format!("{whole}.{rest}{unit}") }
}

/// Groups thousands with a non-breaking space, which works in every language.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// `$170.12`. Amounts below a dollar keep their significant digits.
pub(crate) fn money(micro_usd: u64) -> String {
    let keep = match micro_usd {
        1_000_000.. => 2,
        1_000.. => 4,
        _ => 6,
    };
    let unit = 10_u64.pow(6 - keep);
    let exact = usd(micro_usd.saturating_add(unit / 2) / unit * unit);
    let (whole, fraction) = exact.split_once('.').unwrap_or((&exact, ""));
    let whole: u64 = whole.parse().unwrap_or_default();
    format!("${}.{fraction:0<2}", count(whole))
}

/// Parses dollars from the wire format into millionths. `None` if it isn't a number.
pub(crate) fn micro(cost: &Json) -> u64 {
    micro_usd(cost.get()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn small_amounts_keep_their_significant_digits() {
        let shown: Vec<_> =
            [0, 1, 123, 1_240, 50_000, 51_234, 999_999, 7_105_000, 170_119_999, 1_234_000_000].map(money).into();
        assert_eq!(
            shown,
            [
                "$0.00",
                "$0.000001",
                "$0.000123",
                "$0.0012",
                "$0.05",
                "$0.0512",
                "$1.00",
                "$7.11",
                "$170.12",
                "$1\u{202f}234.00"
            ]
        );
    }

    #[test]
    fn numbers_are_grouped_and_abbreviated() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
        let brief =
            |amount, language: Language| brief(QuotaMeasure::Tokens, amount, language.text()).replace('\u{202f}', " ");
        let amounts = [120, 1_500, 20_000, 41_250_000, 1_500_000_000_000];
        assert_eq!(amounts.map(|amount| brief(amount, Language::En)), ["120", "1.5 k", "20 k", "41.2 M", "1.5 T"]);
        assert_eq!(amounts.map(|amount| brief(amount, Language::Zh)), ["120", "1500", "2 万", "4125 万", "15000 亿"]);
    }
}
