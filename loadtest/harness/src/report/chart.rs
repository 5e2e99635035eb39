//! One chart: lines over an axis, and marks where something was done.

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{PathElement, Text};
use plotters::prelude::Cartesian2d;
use plotters::series::LineSeries;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{BLACK, Color, IntoFont, Palette, Palette99, RGBColor, WHITE};

/// Width and height, in the SVG's own unit.
const SIZE: (u32, u32) = (960, 300);

/// Room above the largest value.
const HEADROOM: f64 = 1.08;

/// Marks that lie close to each other say what they are in so many rows, of this part of the height.
const MARK_ROWS: usize = 4;
const MARK_ROW: f64 = 0.06;

/// From here on, as a part of the width, a mark's words stand before it.
const MARK_TURNS: f64 = 0.7;

const MARK: RGBColor = RGBColor(176, 0, 32);

/// A chart.
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    /// What the axes are.
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// How a value of the horizontal axis is written.
    pub(super) x_label: &'a dyn Fn(f64) -> String,
    /// Where something was done, and what.
    pub(super) marks: &'a [(f64, String)],
    pub(super) lines: &'a [Line],
}

/// A line; without a name there is no legend.
pub(super) struct Line {
    pub(super) name: String,
    /// Where the second is no number, nothing was measured: the line is broken off there.
    pub(super) points: Vec<(f64, f64)>,
}

impl Line {
    fn pieces(&self) -> impl Iterator<Item = &[(f64, f64)]> {
        self.points.split(|(_, value)| value.is_nan()).filter(|piece| !piece.is_empty())
    }
}

impl<'a> Chart<'a> {
    /// One over seconds, still without lines.
    pub(super) fn over_time(y: &'a str) -> Self {
        let x_label = &|seconds| format!("{seconds:.0}");
        Self { title: "", x: "seconds", y, x_label, marks: &[], lines: &[] }
    }

    /// The chart as SVG.
    ///
    /// # Errors
    /// In words, why it cannot be drawn.
    pub(super) fn svg(&self) -> Result<String, String> {
        let points = || self.lines.iter().flat_map(Line::pieces).flatten();
        let Some(x_max) = points().map(|point| point.0).max_by(f64::total_cmp) else {
            return Err("nothing was measured".to_owned());
        };
        let x_min = points().map(|point| point.0).fold(0.0, f64::min);
        let y_max = points().map(|point| point.1).fold(0.0, f64::max);
        let (width, height) = (x_max - x_min, y_max);
        let (x_max, y_max) = (
            if width > 0.0 { x_max } else { x_min + 1.0 },
            if height > 0.0 { y_max * HEADROOM } else { 1.0 },
        );
        let mut svg = String::new();
        self.draw(&mut svg, (x_min, x_max), y_max).map_err(|error| error.to_string())?;
        Ok(svg)
    }

    fn draw(
        &self,
        svg: &mut String,
        (x_min, x_max): (f64, f64),
        y_max: f64,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(text)?;
        let mut chart = ChartBuilder::on(&area);
        let mut chart: plotters::chart::ChartContext<
            '_,
            _,
            Cartesian2d<RangedCoordf64, RangedCoordf64>,
        > = chart
            .caption(self.title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(70)
            .build_cartesian_2d(x_min..x_max, 0.0..y_max)
            .map_err(text)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&|value| (self.x_label)(*value))
            .y_label_formatter(&|value| amount(*value))
            .draw()
            .map_err(text)?;
        for (index, line) in self.lines.iter().enumerate() {
            let style = Palette99::pick(index).stroke_width(2);
            for (number, piece) in line.pieces().enumerate() {
                // One point alone is no line.
                let dot = if piece.len() == 1 { 2 } else { 0 };
                let series = LineSeries::new(piece.iter().copied(), style).point_size(dot);
                let drawn = chart.draw_series(series).map_err(text)?;
                if number == 0 && !line.name.is_empty() {
                    drawn
                        .label(&line.name)
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
                }
            }
        }
        for (index, (at, what)) in self.marks.iter().enumerate() {
            let is_late = *at > x_min + MARK_TURNS * (x_max - x_min);
            let side = if is_late { HPos::Right } else { HPos::Left };
            let style = ("sans-serif", 11).into_font().color(&MARK).pos(Pos::new(side, VPos::Top));
            let row = (index % MARK_ROWS) as f64;
            let upright = [(*at, 0.0), (*at, y_max)];
            let line = PathElement::new(upright, MARK.stroke_width(1));
            let words = format!(" {what} ");
            let words = Text::new(words, (*at, y_max * (1.0 - MARK_ROW * row)), style);
            chart.draw_series([line]).map_err(text)?;
            chart.draw_series([words]).map_err(text)?;
        }
        if self.lines.iter().any(|line| !line.name.is_empty()) {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::MiddleRight)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.2))
                .draw()
                .map_err(text)?;
        }
        drop(chart);
        area.present().map_err(text)?;
        Ok(())
    }
}

/// A value in few characters.
pub(super) fn amount(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Steps of an axis are 1, 2 or 5 of something: what is further behind the point is rounding.
    let rounded = (scaled * 1e4).round() / 1e4;
    format!("{rounded}{unit}")
}

/// An error that borrows nothing of what was drawn on.
fn text(error: impl std::fmt::Display) -> Box<dyn std::error::Error> {
    error.to_string().into()
}
