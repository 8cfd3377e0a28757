//! Plots as SVG: lines and bars, nothing else.
//!
//! Owns: axes, marks and the legend.
//! Promises: the same bytes for the same figures.
//! Never: reads what it draws.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 44.0;
const COLOURS: [&str; 8] =
    ["#1b6ca8", "#d1495b", "#3a7d44", "#edae49", "#6a4c93", "#5c677d", "#00798c", "#8d5524"];

/// A line: its name, and its points.
pub type Series = (String, Vec<(f64, f64)>);

/// Lines over a common axis.
pub fn lines(title: &str, x_name: &str, y_name: &str, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|(_, points)| points);
    let x_low = points().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let x_high = points().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
    let y_high = points().map(|p| p.1).fold(0.0, f64::max) * 1.05;
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let x = |value: f64| LEFT + (value - x_low) / (x_high - x_low).max(1e-9) * width;
    let y = |value: f64| TOP + height - value / y_high.max(1e-9) * height;
    let mut out = String::new();
    let mut put = |args: std::fmt::Arguments<'_>| {
        out.write_fmt(args).and_then(|()| out.write_char('\n')).expect("memory");
    };
    put(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">"
    ));
    put(format_args!("<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>"));
    put(format_args!("<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{title}</text>"));
    for tick in 0..=5 {
        let share = f64::from(tick) / 5.0;
        let (at_x, at_y) = (x_low + share * (x_high - x_low), share * y_high);
        put(format_args!(
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\">{at_y:.2}</text>\
             <text x=\"{4:.1}\" y=\"{5:.1}\" text-anchor=\"middle\">{at_x:.2}</text>",
            LEFT + width,
            y(at_y),
            LEFT - 6.0,
            y(at_y) + 4.0,
            x(at_x),
            TOP + height + 16.0
        ));
    }
    put(format_args!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_name}</text>\
         <text x=\"14\" y=\"{2:.1}\" transform=\"rotate(-90 14 {2:.1})\" \
         text-anchor=\"middle\">{y_name}</text>",
        LEFT + width / 2.0,
        HEIGHT - 8.0,
        TOP + height / 2.0
    ));
    for (no, (name, points)) in series.iter().enumerate() {
        let colour = COLOURS[no % COLOURS.len()];
        let path: Vec<String> =
            points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
        let legend = TOP + 16.0 * no as f64 + 6.0;
        put(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{legend:.1}\" fill=\"{colour}\">{name}</text>",
            path.join(" "),
            LEFT + width + 10.0
        ));
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_plot_has_every_line() {
        let series = [("one".to_owned(), vec![(0.0, 1.0), (1.0, 2.0)]), ("two".into(), vec![])];
        let plot = super::lines("title", "x", "y", &series);
        assert!(plot.starts_with("<svg") && plot.ends_with("</svg>\n"));
        assert_eq!(plot.matches("<polyline").count(), 2);
        assert!(!plot.contains("NaN"));
    }
}
