//! The command lines of `sfs-ctl top` and `sfs-ctl report`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `sfs-ctl top`.
#[derive(Args)]
pub struct TopArguments {
    /// Mount point of the volume, or its device
    pub mount: PathBuf,
    /// Seconds between two looks at the volume
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    pub interval: f64,
    /// Print one frame and end
    #[arg(short, long)]
    pub once: bool,
    /// Number of intervals before the frame that --once or --svg prints
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: u32,
    /// Print one frame as an SVG picture
    #[arg(long)]
    pub svg: bool,
    /// Width of a frame that is printed; that of the terminal, or 80
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub columns: Option<u16>,
    /// Number of lines of a frame that is printed; that of the terminal, or 24
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub lines: Option<u16>,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let secs = text.parse::<f64>().ok().filter(|secs| (0.1..=3600.0).contains(secs));
    secs.ok_or_else(|| "give 0.1 to 3600 seconds".into())
}

/// Arguments of `sfs-ctl report`.
#[derive(Args)]
pub struct ReportArguments {
    /// Mount point, block device or image file of the volume
    pub path: PathBuf,
    /// File to write, or - for the standard output
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Overwrite the file
    #[arg(short, long)]
    pub force: bool,
}
