//! The output of the experiments: tables and figures in `docs/lab.md`, `docs/lab/flash.md` and
//! `docs/lab/`, and the progress bar of a long run.
//!
//! A [`Document`] replaces sections between markers, and writes a figure as SVG beside its data as CSV, from
//! which `sfs-lab redraw` draws it again. [`FIGURES`] has the titles, axes and scales of all figures.

mod axis;
mod document;
mod figure;
mod figures;
mod progress;
mod summary;

pub use axis::{Axis, AxisScale};
pub use document::{Document, table};
pub use figure::{FigureStyle, Marks, Series};
pub use figures::FIGURES;
pub use progress::{run_parallel, with_bar};
pub use summary::{MedianRange, mb_per_s};
