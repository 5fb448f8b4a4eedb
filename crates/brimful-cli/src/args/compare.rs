//! Arguments of `brimful compare`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::args::{JobArguments, RehearsalArguments};

/// Arguments of `brimful compare`.
#[derive(Debug, Args)]
pub struct CompareArguments {
    /// GPU models to compare, for example t4,rtx-4090,"2x a100-40gb" [default without --as: the GPUs of this machine, or t4,l4,a100-40gb,h100 if it has none]
    #[arg(long, value_name = "GPUS")]
    pub gpu: Vec<String>,

    /// Machines to compare, for example colab-t4,kaggle-t4x2
    #[arg(long = "as", value_name = "PROFILES", value_delimiter = ',')]
    pub machine: Vec<String>,

    /// Prices per hour, for example l4=0.70,colab-t4=0.18
    #[arg(long, value_name = "NAME=PRICE", value_delimiter = ',', value_parser = price)]
    pub price: Vec<(String, f64)>,

    /// Length of the job in passes over the training data [default: 1]
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "total_steps")]
    pub epochs: Option<f64>,

    /// Length of the job in optimizer steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub total_steps: Option<u64>,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,

    /// Write a report with a chart of time against cost to this HTML file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    #[command(flatten)]
    pub job: JobArguments,

    #[command(flatten)]
    pub rehearsal: RehearsalArguments,

    /// Training command to compare as it is; without one, settings of the job file are planned for each GPU
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["job", "mode"])]
    pub command: Vec<OsString>,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("expected a number above zero".to_owned()),
    }
}

fn price(text: &str) -> Result<(String, f64), String> {
    let expected = "expected NAME=PRICE, for example l4=0.70";
    let (name, price) = text.split_once('=').ok_or(expected)?;
    match price.trim().parse::<f64>() {
        Ok(price) if price.is_finite() && price >= 0.0 => Ok((name.trim().to_owned(), price)),
        _ => Err(expected.to_owned()),
    }
}
