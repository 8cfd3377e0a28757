//! Prints the log write amplification of the example's policy beside that of policies of SFS.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use anyhow::Result;
use own_policy::{TwoAges, amplification, of_sfs, victims, volume};

fn main() -> Result<()> {
    let space = volume()?;
    let mut output = io::stdout().lock();
    writeln!(output, "{:<16}{:>10}{:>10}{:>10}", "", "two-ages", "sep-gc", "sfs")?;
    for workload in ["uniform", "zipf:0.99", "hotcold:90/10"] {
        let own = Box::new(TwoAges::new(&space, 0.3));
        let mut row =
            vec![amplification(&space, workload, own, victims(&space, "cost-benefit-sqrt")?)?];
        for name in ["sep-gc", "sfs"] {
            let (grouping, victims) = of_sfs(&space, name)?;
            row.push(amplification(&space, workload, grouping, victims)?);
        }
        let cells: String = row.iter().map(|value| format!("{value:>10.2}")).collect();
        writeln!(output, "{workload:<16}{cells}")?;
    }
    Ok(())
}
