//! A stacked bar chart as SVG. Its data is also shown in a table.

use std::fmt::Write as _;

use attache_protocol::rules::quota::QuotaMeasure;

use super::{
    amount,
    html::{Markup, escape},
    usage_breakdown::{UsageBreakdown, short_date},
};
use crate::text::Text;

/// The positions of the baseline and of the highest line, in tenths of a pixel.
const BASELINE: u64 = 2_100;
const TOP: u64 = 160;
/// The width, in ten-thousandths.
const WIDTH: u64 = 10_000;
/// Maximum number of lines above the baseline.
const MAX_GRID_LINES: u64 = 5;

/// The grid lines of an axis: their step and count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChartAxis {
    step: u64,
    lines: u64,
}

/// The axis labels and bars of the chart, without its frame.
pub(crate) fn draw(ledger: &UsageBreakdown, measure: QuotaMeasure, t: &'static Text) -> Markup {
    let most = ledger.by_day.iter().map(|day| day.of(measure)).max().unwrap_or(0);
    let axis = ChartAxis::for_max(most);
    let mut html = String::with_capacity(4_096);
    html.push_str("<svg class=\"axis\" aria-hidden=\"true\">");
    for line in 0..=axis.lines {
        let label = amount::brief(measure, line * axis.step, t);
        let _ =
            write!(html, "<text x=\"100%\" y=\"{}\" text-anchor=\"end\">", tenths(axis.height(line * axis.step) + 40));
        escape(&mut html, &label);
        html.push_str("</text>");
    }
    html.push_str("</svg><svg class=\"plot\" role=\"img\" aria-labelledby=\"chart-t\">");
    for line in 0..=axis.lines {
        let y = tenths(axis.height(line * axis.step));
        let _ = write!(html, "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/>");
    }
    bars(&mut html, ledger, measure, axis, t);
    html.push_str("</svg>");
    Markup::trusted(html)
}

fn bars(html: &mut String, ledger: &UsageBreakdown, measure: QuotaMeasure, axis: ChartAxis, t: &'static Text) {
    let count = ledger.days.len() as u64;
    let slot = WIDTH / count.max(1);
    // A label takes about a seventh of the width of the narrowest chart.
    let every = count.div_ceil(7).max(1);
    for (place, (day, number)) in ledger.days.iter().zip(0_u64..).enumerate() {
        let (x, width) = (number * WIDTH / count + slot / 5, slot * 3 / 5);
        let spoken = short_date(*day, t);
        let mut below = 0;
        for series in &ledger.series {
            let value = series.days[place].of(measure);
            if value == 0 {
                continue;
            }
            let (bottom, top) = (axis.height(below), axis.height(below + value));
            below += value;
            let _ = write!(
                html,
                "<rect class=\"{}\" x=\"{}%\" y=\"{}\" width=\"{}%\" height=\"{}\"><title>",
                series.class,
                hundredths(x),
                tenths(top),
                hundredths(width),
                // Every nonzero bar is visible, with a thin gap between bars.
                tenths(bottom.saturating_sub(top + 10).max(10)),
            );
            escape(html, &t.chart_bar(&spoken, &series.name, amount::full(measure, value)));
            html.push_str("</title></rect>");
        }
        let back = count - 1 - number;
        if back == 0 {
            // At the edges, there is no room to centre the label.
            let (at, anchor) = if every == 1 { (x + width / 2, "middle") } else { (WIDTH, "end") };
            let _ = write!(html, "<text class=\"now\" x=\"{}%\" y=\"230\" text-anchor=\"{anchor}\">", hundredths(at));
            escape(html, t.today);
            html.push_str("</text>");
        } else if back.is_multiple_of(every) {
            let _ = write!(html, "<text x=\"{}%\" y=\"230\" text-anchor=\"middle\">", hundredths(x + width / 2));
            escape(html, &spoken);
            html.push_str("</text>");
        }
    }
}

// === impl ChartAxis ===

impl ChartAxis {
    /// Steps of 1, 2 or 5, so that the lines are easy to read.
    fn for_max(most: u64) -> Self {
        let mut power = 1_u64;
        loop {
            for step in [power, power.saturating_mul(2), power.saturating_mul(5)] {
                if step.saturating_mul(MAX_GRID_LINES) >= most {
                    return Self { step, lines: most.div_ceil(step).max(1) };
                }
            }
            power = power.saturating_mul(10);
        }
    }

    /// The distance of an amount from the top, in tenths of a pixel.
    fn height(self, amount: u64) -> u64 {
        let whole = u128::from(self.step) * u128::from(self.lines);
        let up = u128::from(amount) * u128::from(BASELINE - TOP) / whole.max(1);
        BASELINE.saturating_sub(u64::try_from(up).unwrap_or(BASELINE))
    }
}

fn tenths(number: u64) -> String {
    format!("{}.{}", number / 10, number % 10)
}

fn hundredths(number: u64) -> String {
    format!("{}.{:02}", number / 100, number % 100)
}

/// A gauge: first the used part, then the reserved part.
pub(crate) fn gauge(spent: u64, held: u64, limit: u64, label: &str) -> Markup {
    let part = |amount: u64| {
        let share = u128::from(amount) * u128::from(WIDTH) / u128::from(limit.max(1));
        u64::try_from(share).unwrap_or(WIDTH).min(WIDTH)
    };
    let taken = spent.saturating_add(held);
    let class = match part(taken) {
        WIDTH => "full",
        9_000.. => "close",
        _ => "",
    };
    let (spent, both) = (part(spent), part(taken));
    let mut html = format!("<svg class=\"gauge {class}\" role=\"img\" aria-label=\"");
    escape(&mut html, label);
    let _ = write!(
        html,
        "\"><rect class=\"h\" width=\"{}%\" height=\"100%\"/><rect class=\"s\" width=\"{}%\" height=\"100%\"/></svg>",
        hundredths(both),
        hundredths(spent)
    );
    Markup::trusted(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_a_few_round_values() {
        let axes = [0, 1, 5, 6, 19, 100, 1_001].map(|most| {
            let axis = ChartAxis::for_max(most);
            (axis.step, axis.lines)
        });
        assert_eq!(axes, [(1, 1), (1, 1), (1, 5), (2, 3), (5, 4), (20, 5), (500, 3)]);
    }

    #[test]
    fn a_gauge_never_exceeds_its_width() {
        let drawn = gauge(150, 10, 100, "\"<");
        assert_eq!(
            drawn.to_string(),
            "<svg class=\"gauge full\" role=\"img\" aria-label=\"&quot;&lt;\"><rect class=\"h\" width=\"100.00%\" height=\"100%\"/><rect class=\"s\" width=\"100.00%\" height=\"100%\"/></svg>"
        );
    }
}
