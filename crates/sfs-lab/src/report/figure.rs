//! Figures as SVG: lines, or bars for categories, with axes, units and a legend, drawn by `plotters`.
//!
//! The same data gives the same bytes. No font is loaded: the SVG names a generic font, and `plotters`
//! estimates the width of a label.

use anyhow::{Context, Result};
use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use super::axis::{Axis, AxisCoord, AxisScale};

/// Width and height, in pixels.
const SIZE: (u32, u32) = (720, 400);

// Sizes of text, in units that `plotters` draws as 0.81 pixels.
const TITLE_SIZE: u32 = 20;
const AXIS_SIZE: u32 = 16;
const LABEL_SIZE: u32 = 15;

/// Width of the chart in pixels; the legend is to its right.
const CHART_WIDTH: u32 = 540;

/// Distance between two legend entries, in pixels.
const LEGEND_STEP: i32 = 20;

/// Colours of the series, distinguishable with the common kinds of colour blindness (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(96, 96, 96),
    RGBColor(0, 0, 0),
];

/// Minimum number of points with a line: between two points a line would claim more than is known.
const LINE_POINTS_MIN: usize = 3;

/// Part of a category's width that its bars take.
const BARS_WIDTH: f64 = 0.8;

/// Maximum number of points of a line with markers.
const MARKERS_MAX: usize = 40;

/// A line of a figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points in order of x.
    pub points: Vec<(f64, f64)>,
}

/// A point of a figure's CSV.
#[derive(Serialize, Deserialize)]
struct CsvPoint {
    series: String,
    x: f64,
    y: f64,
}

impl Series {
    /// Returns a line.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points }
    }

    /// Adds a point to the line of this name, which is added if it is new.
    pub fn add(series: &mut Vec<Series>, name: &str, point: (f64, f64)) {
        match series.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => series.push(Series::new(name, vec![point])),
        }
    }

    /// Returns all points as CSV with the columns `series`, `x` and `y`.
    pub fn to_csv(series: &[Series]) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for line in series {
            for &(x, y) in &line.points {
                let point = CsvPoint { series: line.name.clone(), x, y };
                writer.serialize(point).expect("a vector takes every row");
            }
        }
        let bytes = writer.into_inner().expect("a vector takes every row");
        String::from_utf8(bytes).expect("all fields are UTF-8")
    }

    /// Parses the CSV of [`Series::to_csv`].
    pub fn from_csv(text: &str) -> Result<Vec<Series>> {
        let mut series = Vec::new();
        for point in csv::Reader::from_reader(text.as_bytes()).deserialize() {
            let CsvPoint { series: name, x, y } = point?;
            Series::add(&mut series, &name, (x, y));
        }
        Ok(series)
    }
}

/// How the points of a series are drawn, where the horizontal axis has no categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// Joined by a line, if there are enough; few points have markers as well.
    Lines,
    /// Each by itself, for a picture of thousands.
    Dots,
}

/// The title, the axes and the marks of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigureStyle {
    /// Name of the file, without extension.
    pub name: &'static str,
    /// Title.
    pub title: &'static str,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Marks of the points.
    pub marks: Marks,
}

impl FigureStyle {
    /// Returns the SVG of the lines.
    ///
    /// # Errors
    ///
    /// If there is no point, or a value cannot be on its axis.
    pub fn draw(&self, series: &[Series]) -> Result<String> {
        let points = || series.iter().flat_map(|line| line.points.iter().copied());
        let x = AxisCoord::new(&self.x, points().map(|point| point.0)).context(self.name)?;
        let y = AxisCoord::new(&self.y, points().map(|point| point.1)).context(self.name)?;
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            let (chart, legend) = root.split_horizontally(CHART_WIDTH);
            self.draw_chart(&chart, x, y, series)?;
            draw_legend(&legend, series)?;
            root.present()?;
        }
        Ok(svg)
    }

    fn draw_chart(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        x: AxisCoord,
        y: AxisCoord,
        series: &[Series],
    ) -> Result<()> {
        let floor = y.range().start;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", TITLE_SIZE))
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .bold_line_style(RGBColor(224, 224, 224))
            .x_label_formatter(&|value| self.x.scale.tick_label(*value))
            .y_label_formatter(&|value| self.y.scale.tick_label(*value))
            .x_desc(self.x.label)
            .y_desc(self.y.label)
            .label_style(("sans-serif", LABEL_SIZE))
            .axis_desc_style(("sans-serif", AXIS_SIZE))
            .draw()?;
        if let AxisScale::Categories(_) = self.x.scale {
            let width = BARS_WIDTH / series.len() as f64;
            for ((no, line), colour) in (0..).zip(series).zip(COLOURS.iter().cycle()) {
                let left = f64::from(no) * width - BARS_WIDTH / 2.0;
                let bars = line.points.iter().map(|&(category, value)| {
                    let corners = [(category + left, floor), (category + left + width, value)];
                    Rectangle::new(corners, colour.filled())
                });
                chart.draw_series(bars)?;
            }
            return Ok(());
        }
        for (colour, line) in COLOURS.iter().cycle().zip(series) {
            let points = line.points.iter().copied();
            if self.marks == Marks::Dots {
                chart.draw_series(points.map(|point| Circle::new(point, 1, colour.filled())))?;
                continue;
            }
            if line.points.len() >= LINE_POINTS_MIN {
                chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
            }
            if line.points.len() <= MARKERS_MAX {
                chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
            }
        }
        Ok(())
    }
}

fn draw_legend(area: &DrawingArea<SVGBackend<'_>, Shift>, series: &[Series]) -> Result<()> {
    for ((no, line), colour) in (0..).zip(series).zip(COLOURS.iter().cycle()) {
        let y = 50 + no * LEGEND_STEP;
        area.draw(&PathElement::new(vec![(0, y), (18, y)], colour.stroke_width(3)))?;
        area.draw(&Text::new(
            line.name.clone(),
            (24, y - 6),
            ("sans-serif", LABEL_SIZE).into_font(),
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::axis::AxisScale;
    use super::*;

    const FIGURE: FigureStyle = FigureStyle {
        name: "test",
        title: "A title",
        x: Axis { label: "size, KiB", scale: AxisScale::Logarithmic },
        y: Axis { label: "throughput, MB/s", scale: AxisScale::FromZero },
        marks: Marks::Lines,
    };

    fn series() -> Vec<Series> {
        vec![
            Series::new("one", vec![(1.0, 1.5), (1024.0, 2.0)]),
            Series::new("two, three", vec![(4.0, 0.25)]),
        ]
    }

    #[test]
    fn a_figure_has_its_title_axes_lines_and_legend() {
        let svg = FIGURE.draw(&series()).expect("a figure");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["A title", "size, KiB", "throughput, MB/s", "one", "two, three"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg, FIGURE.draw(&series()).expect("the same figure"));
    }

    #[test]
    fn dots_are_not_joined_however_many_there_are() {
        let figure = FigureStyle { marks: Marks::Dots, ..FIGURE };
        let points = (1..=100).map(|x| (f64::from(x), f64::from(x % 7))).collect();
        let svg = figure.draw(&[Series::new("dots", points)]).expect("a figure");
        assert_eq!(svg.matches("<circle").count(), 100);
        let lines = svg.lines().filter(|line| line.starts_with("<polyline"));
        let coloured = lines.filter(|line| line.contains("#0072B2")).count();
        assert_eq!(coloured, 1, "only the entry of the legend: {svg}");
    }

    #[test]
    fn categories_have_bars_side_by_side() {
        let scale = AxisScale::Categories(&["small", "large"]);
        let figure = FigureStyle { x: Axis { label: "kind", scale }, ..FIGURE };
        let series = ["one", "two"].map(|name| Series::new(name, vec![(0.0, 1.0), (1.0, 3.0)]));
        let svg = figure.draw(&series).expect("a figure");
        let bars = |colour: &str| {
            let rects = svg.lines().filter(|line| line.starts_with("<rect"));
            rects.filter(|line| line.contains(&format!("fill=\"{colour}\""))).count()
        };
        assert_eq!((bars("#0072B2"), bars("#D55E00")), (2, 2), "{svg}");
        assert!(svg.contains("small") && svg.contains("large"));
    }

    #[test]
    fn data_survives_writing_and_reading_csv() {
        let csv = Series::to_csv(&series());
        assert!(csv.starts_with("series,x,y\none,1.0,1.5\n"), "{csv}");
        assert_eq!(Series::from_csv(&csv).expect("points"), series());
    }

    #[test]
    fn a_value_that_is_not_on_its_axis_is_an_error() {
        assert!(FIGURE.draw(&[]).is_err());
        assert!(FIGURE.draw(&[Series::new("one", vec![(0.0, 1.0)])]).is_err());
        assert!(FIGURE.draw(&[Series::new("one", vec![(1.0, -1.0)])]).is_err());
        assert!(FIGURE.draw(&[Series::new("one", vec![(1.0, f64::NAN)])]).is_err());
    }
}
