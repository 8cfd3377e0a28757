//! Charts as inline SVG: bars that may be stacked, with named axes and round ticks.

use std::fmt::Write;

use crate::escape::escape;

/// Size of a chart, in its own units; the page scales it.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 230.0;

/// Room for labels left of the bars, and below them.
const LEFT: f64 = 74.0;
const BELOW: f64 = 48.0;
const ABOVE: f64 = 12.0;
const RIGHT: f64 = 30.0;

/// A chart of bars.
pub(super) struct BarChart<'a> {
    /// One sentence for those who do not see the chart.
    pub(super) description: &'a str,
    pub(super) x_name: &'a str,
    pub(super) y_name: &'a str,
    /// Ticks of the vertical axis from 0 on, with their labels; the last one is the end of the axis.
    pub(super) y_ticks: Vec<(f64, String)>,
    pub(super) bars: Vec<Bar>,
    /// Labels below the chart: position in bars from its left end, and text.
    pub(super) x_labels: Vec<(f64, String)>,
    /// Pins at the top: position in bars, text, and class of their colour.
    pub(super) pins: Vec<(f64, String, String)>,
}

/// A bar.
pub(super) struct Bar {
    /// Parts from the bottom to the top: value, and class of the colour.
    pub(super) parts: Vec<(f64, String)>,
    /// Text that a pointer shows.
    pub(super) title: String,
}

impl BarChart<'_> {
    /// Returns the chart as SVG.
    pub(super) fn svg(&self) -> String {
        let end = self.y_ticks.last().map_or(1.0, |(value, _)| *value).max(f64::MIN_POSITIVE);
        let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - ABOVE - BELOW);
        let y_of = |value: f64| ABOVE + height * (1.0 - (value / end).clamp(0.0, 1.0));
        let step = width / self.bars.len().max(1) as f64;
        let mut svg = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(self.description)
        );
        for (value, label) in &self.y_ticks {
            let y = y_of(*value);
            let (right, text_x) = (WIDTH - RIGHT, LEFT - 6.0);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{text_x}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                y + 4.0,
                escape(label)
            );
        }
        for (at, bar) in self.bars.iter().enumerate() {
            let gap = if step > 4.0 { step * 0.12 } else { 0.0 };
            let (x, bar_width) = (LEFT + at as f64 * step + gap, (step - 2.0 * gap).max(0.5));
            let _ = write!(svg, "<g><title>{}</title>", escape(&bar.title));
            let mut below = 0.0;
            for (value, class) in bar.parts.iter().filter(|(value, _)| *value > 0.0) {
                let (top, bottom) = (y_of(below + value), y_of(below));
                let part_height = (bottom - top).max(0.8);
                let _ = write!(
                    svg,
                    "<rect class=\"{}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{bar_width:.1}\" height=\"{part_height:.1}\"/>",
                    escape(class),
                    bottom - part_height
                );
                below += value;
            }
            svg.push_str("</g>\n");
        }
        for (position, label) in &self.x_labels {
            self.write_label(&mut svg, LEFT + position * step, label);
        }
        for (position, text, class) in &self.pins {
            let (x, y) = (LEFT + position * step, ABOVE);
            let _ = writeln!(
                svg,
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y}\" y2=\"{:.1}\"/>\
                 <circle class=\"{}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"8\"/>\
                 <text class=\"digit\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - BELOW,
                escape(class),
                y + 6.0,
                y + 10.0,
                escape(text)
            );
        }
        let (middle_x, middle_y) = (LEFT + width / 2.0, ABOVE + height / 2.0);
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"{middle_x}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text class=\"name\" transform=\"translate(13 {middle_y}) rotate(-90)\" text-anchor=\"middle\">{}</text></svg>",
            HEIGHT - 8.0,
            escape(self.x_name),
            escape(self.y_name)
        );
        svg
    }

    fn write_label(&self, svg: &mut String, x: f64, label: &str) {
        let (top, bottom) = (HEIGHT - BELOW, HEIGHT - BELOW + 5.0);
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 12.0,
            escape(label)
        );
    }
}

/// Returns positions for at most `count` labels among `len` bars, evenly spread.
pub(super) fn label_positions(len: usize, count: usize) -> impl Iterator<Item = usize> {
    let step = len.div_ceil(count.max(1)).max(1);
    (0..len).step_by(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_stacked_and_texts_escaped() {
        let chart = BarChart {
            description: "a \"chart\"",
            x_name: "<x>",
            y_name: "y",
            y_ticks: vec![(0.0, "0".into()), (10.0, "10".into())],
            bars: vec![Bar {
                parts: vec![(5.0, "g1".into()), (0.0, "g2".into()), (2.5, "g3".into())],
                title: "one".into(),
            }],
            x_labels: vec![(0.5, "first".into())],
            pins: vec![(0.5, "1".into(), "g1".into())],
        };
        let svg = chart.svg();
        assert!(
            svg.contains("a &quot;chart&quot;")
                && svg.contains("&lt;x&gt;")
                && !svg.contains("<x>")
        );
        assert_eq!(svg.matches("<rect").count(), 2, "{svg}");
        let height = HEIGHT - ABOVE - BELOW;
        assert!(svg.contains(&format!("height=\"{:.1}\"", height / 2.0)), "{svg}");
        assert!(svg.contains(&format!("height=\"{:.1}\"", height / 4.0)), "{svg}");
        assert_eq!(label_positions(10, 4).collect::<Vec<_>>(), [0, 3, 6, 9]);
        assert_eq!(label_positions(0, 4).count(), 0);
    }
}
