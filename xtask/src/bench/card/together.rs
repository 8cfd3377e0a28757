//! All programs at once, each in a directory of its own.
//!
//! Their work is added up as parts of a day's use, so that no program counts for more because its units
//! are small.

use std::thread;

use anyhow::{Context as _, Result};

use super::load::{Limit, Load, Place, Program, Works};

pub(super) struct Together {
    loads: Vec<(Program, Box<dyn Load>)>,
}

pub(super) fn prepare(place: &Place<'_>) -> Result<Together> {
    let mut loads = Vec::new();
    for program in Program::SINGLE {
        let own = place.within(program.name())?;
        let load = program.prepare(&own).with_context(|| program.name())?;
        loads.push((program, load));
    }
    Ok(Together { loads })
}

impl Load for Together {
    fn run(&mut self, limit: Limit) -> Result<Works> {
        thread::scope(|scope| {
            let running: Vec<_> = self
                .loads
                .iter_mut()
                .map(|(program, load)| {
                    let program = *program;
                    scope.spawn(move || load.run(limit).with_context(|| program.name()))
                })
                .collect();
            let mut works = Works::new();
            for thread in running {
                works.extend(thread.join().expect("no program panics")?);
            }
            Ok(works)
        })
    }

    fn end(self: Box<Self>) -> Result<()> {
        self.loads.into_iter().try_for_each(|(_, load)| load.end())
    }
}
