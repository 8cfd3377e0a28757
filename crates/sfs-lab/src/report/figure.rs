//! Figures as SVG: lines with axes, units and a legend, drawn by `plotters`.
//!
//! The same data gives the same bytes. No font is loaded: the SVG names a generic font, and `plotters`
//! estimates the width of a label.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

const SIZE: (u32, u32) = (720, 400);

/// Width of the chart; the legend is to its right.
const CHART_WIDTH: u32 = 540;

/// Distance between the baselines of two legend entries.
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

/// Points above which a line has no markers.
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

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// From zero.
    FromZero,
    /// From the lowest value to the highest.
    Linear,
    /// Logarithmic, for values above zero.
    Logarithmic,
    /// Names for the values 0, 1, 2 and so on.
    Categories(&'static [&'static str]),
}

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// Quantity and unit.
    pub label: &'static str,
    /// Scale.
    pub scale: Scale,
}

/// The title and the axes of a figure.
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
}

impl FigureStyle {
    /// Returns the SVG of the lines.
    ///
    /// # Errors
    ///
    /// If there is no point, or a value cannot be on its axis.
    pub fn draw(&self, series: &[Series]) -> Result<String> {
        let points = || series.iter().flat_map(|line| line.points.iter().copied());
        let x = self.x.range(points().map(|point| point.0)).context(self.name)?;
        let y = self.y.range(points().map(|point| point.1)).context(self.name)?;
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            let (chart, legend) = root.split_horizontally(CHART_WIDTH);
            use Scale::Logarithmic;
            match (self.x.scale, self.y.scale) {
                (Logarithmic, Logarithmic) => {
                    self.draw_chart(&chart, x.log_scale(), y.log_scale(), series)?;
                }
                (Logarithmic, _) => self.draw_chart(&chart, x.log_scale(), y, series)?,
                (_, Logarithmic) => self.draw_chart(&chart, x, y.log_scale(), series)?,
                _ => self.draw_chart(&chart, x, y, series)?,
            }
            draw_legend(&legend, series)?;
            root.present()?;
        }
        Ok(svg)
    }

    fn draw_chart<X, Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        x: X,
        y: Y,
        series: &[Series],
    ) -> Result<()>
    where
        X: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
        Y: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        let x_label = |value: &f64| self.x.tick(*value);
        let y_label = |value: &f64| self.y.tick(*value);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(224, 224, 224))
            .x_labels(self.x.tick_count())
            .y_labels(self.y.tick_count())
            .x_label_formatter(&x_label)
            .y_label_formatter(&y_label)
            .x_desc(self.x.label)
            .y_desc(self.y.label)
            .label_style(("sans-serif", 12))
            .axis_desc_style(("sans-serif", 13))
            .draw()?;
        for (colour, line) in COLOURS.iter().cycle().zip(series) {
            chart.draw_series(LineSeries::new(
                line.points.iter().copied(),
                colour.stroke_width(2),
            ))?;
            if line.points.len() <= MARKERS_MAX {
                let marker = |&point: &(f64, f64)| Circle::new(point, 3, colour.filled());
                chart.draw_series(line.points.iter().map(marker))?;
            }
        }
        Ok(())
    }
}

fn draw_legend(area: &DrawingArea<SVGBackend<'_>, Shift>, series: &[Series]) -> Result<()> {
    for ((no, line), colour) in (0..).zip(series).zip(COLOURS.iter().cycle()) {
        let y = 50 + no * LEGEND_STEP;
        area.draw(&PathElement::new(vec![(0, y), (18, y)], colour.stroke_width(3)))?;
        area.draw(&Text::new(line.name.clone(), (24, y - 6), ("sans-serif", 12).into_font()))?;
    }
    Ok(())
}

impl Axis {
    /// Returns the range of the axis for these values, with a margin.
    fn range(&self, values: impl Iterator<Item = f64>) -> Result<Range<f64>> {
        let (low, high) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        ensure!(low.is_finite() && high.is_finite(), "no point, or a value that is not finite");
        let wider = |low: f64, high: f64| if high > low { low..high } else { low..low + 1.0 };
        Ok(match self.scale {
            Scale::FromZero => {
                ensure!(low >= 0.0, "{low} is below zero");
                wider(0.0, high * 1.05)
            }
            Scale::Linear => wider(low, high),
            Scale::Logarithmic => {
                ensure!(low > 0.0, "{low} is not above zero");
                low / 1.1..high * 1.1
            }
            Scale::Categories(names) => -0.3..names.len() as f64 - 0.7,
        })
    }

    /// Returns the greatest number of ticks.
    fn tick_count(&self) -> usize {
        match self.scale {
            Scale::Categories(names) => names.len() + 1,
            _ => 8,
        }
    }

    /// Returns the label of a tick.
    fn tick(&self, value: f64) -> String {
        match self.scale {
            Scale::Categories(names) if value.fract() == 0.0 && value >= 0.0 => {
                names.get(value as usize).copied().unwrap_or_default().to_owned()
            }
            Scale::Categories(_) => String::new(),
            _ => {
                // At most four digits after the point, without zeros at the end.
                let text = format!("{value:.4}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURE: FigureStyle = FigureStyle {
        name: "test",
        title: "A title",
        x: Axis { label: "size, KiB", scale: Scale::Logarithmic },
        y: Axis { label: "throughput, MB/s", scale: Scale::FromZero },
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
