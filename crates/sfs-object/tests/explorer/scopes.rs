//! Programs of writers and readers, the small scopes in which they meet, and what has to hold.

use std::cell::RefCell;

use sfs_object::{
    Nonce, ObjectError, ObjectName, ObjectStore, Recovered, Thinning, Writer, read_data,
    read_newest,
};

use super::{End, Ended, Explored, Faults, Notes, PlainStore, Program, Script, Wrong, explore};

const THINNING: Thinning = Thinning::by(2);

/// A set of programs, and how much goes wrong.
pub(crate) struct Scope {
    pub(crate) name: &'static str,
    pub(crate) programs: &'static [Program],
    pub(crate) faults: Faults,
}

const NONE: Faults = Faults { lost_replies: 0, late_puts: 0, crashes: 0 };
const LOST: Faults = Faults { lost_replies: 1, ..NONE };
const LATE: Faults = Faults { late_puts: 1, ..NONE };
const CRASH: Faults = Faults { crashes: 1, ..NONE };

/// Scopes that take some seconds together.
pub(crate) const SMALL: &[Scope] = &[
    Scope { name: "one writer", programs: &[first_writer], faults: LOST },
    Scope { name: "two writers", programs: &[first_writer, second_writer], faults: NONE },
    Scope { name: "a lost reply", programs: &[short_writer, second_writer], faults: LOST },
    Scope { name: "a late PUT", programs: &[short_writer, second_writer], faults: LATE },
    Scope { name: "a crash", programs: &[short_writer, second_writer], faults: CRASH },
    Scope { name: "many manifests", programs: &[publisher, second_writer], faults: NONE },
    Scope { name: "a reader", programs: &[first_writer, reader], faults: NONE },
];

/// Scopes that take minutes.
pub(crate) const LONG: &[Scope] = &[
    Scope { name: "three writers", programs: &[one_entry, joiner, third_writer], faults: NONE },
    Scope { name: "a reader of many manifests", programs: &[publisher, reader], faults: NONE },
    Scope { name: "a reader of two writers", programs: &[one_entry, joiner, reader], faults: NONE },
    Scope {
        name: "three writers, a lost reply",
        programs: &[one_entry, joiner, third_writer],
        faults: LOST,
    },
    Scope {
        name: "two writers, everything goes wrong",
        programs: &[one_entry, joiner],
        faults: Faults { lost_replies: 1, late_puts: 1, crashes: 1 },
    },
    Scope {
        name: "two writers that join, a late PUT",
        programs: &[first_writer, second_writer],
        faults: LATE,
    },
];

/// Explores a scope.
pub(crate) fn run(scope: &Scope) -> Result<Explored, Wrong> {
    explore(scope.programs, scope.faults, &check)
}

/// Names of the objects that a state consists of, in order.
fn encode(names: &[ObjectName]) -> Vec<u8> {
    names.iter().map(|name| format!("{name}\n")).collect::<String>().into_bytes()
}

/// Returns the objects of a recovered state, in order.
fn names(recovered: &Recovered) -> Vec<ObjectName> {
    let text = std::str::from_utf8(&recovered.manifest.state).expect("text");
    let named = text.lines().map(|line| line.parse().expect("a name"));
    let begin = recovered.manifest.log_start;
    let log =
        (begin..).take(recovered.log.len()).map(|number| ObjectName::Log(recovered.epoch, number));
    named.chain(log).collect()
}

fn entries(store: &impl ObjectStore, names: &[ObjectName]) -> Result<Vec<u8>, ObjectError> {
    let contents = names.iter().map(|name| read_data(store, *name));
    Ok(contents.collect::<Result<Vec<_>, _>>()?.concat())
}

/// Takes the volume over, and publishes what it has found.
fn begin<'a, S: ObjectStore>(
    store: &'a S,
    notes: &mut Notes,
    nonce: u8,
) -> Result<(Writer<&'a S>, Vec<ObjectName>), ObjectError> {
    let (mut writer, recovered) = Writer::take_over(store, Nonce([nonce; 16]), THINNING)?;
    let found = recovered.as_ref().map(names).unwrap_or_default();
    let begun_with = entries(store, &found)?;
    writer.publish(1, encode(&found))?;
    notes.begun_with = Some(begun_with);
    Ok((writer, found))
}

fn append<S: ObjectStore>(
    writer: &mut Writer<&S>,
    notes: &mut Notes,
    new: &[u8],
) -> Result<Vec<ObjectName>, ObjectError> {
    let contents = new.iter().map(std::slice::from_ref).collect::<Vec<_>>();
    let stored = writer.append(&contents)?;
    notes.acknowledged.extend(new);
    Ok(stored.into_iter().map(|object| object.0).collect())
}

/// Joins all objects of the state into one, and deletes them.
fn join<S: ObjectStore>(
    store: &S,
    writer: &mut Writer<&S>,
    names: &[ObjectName],
) -> Result<ObjectName, ObjectError> {
    let joined = entries(store, names)?;
    let data = writer.put_data(&joined)?;
    let manifests = writer.publish(writer.next_log(), encode(&[data]))?;
    names
        .iter()
        .chain(&manifests)
        .try_for_each(|name| Ok::<_, ObjectError>(store.delete(*name)?))?;
    Ok(data)
}

/// Deletes objects before the manifest that does not need them is confirmed, which is wrong.
pub(crate) fn hasty_writer(store: &Script, notes: &mut Notes) -> Result<(), ObjectError> {
    let (mut writer, mut state) = begin(store, notes, 1)?;
    state.extend(append(&mut writer, notes, &[11])?);
    let data = writer.put_data(&entries(store, &state)?)?;
    state.iter().try_for_each(|name| Ok::<_, ObjectError>(store.delete(*name)?))?;
    writer.publish(writer.next_log(), encode(&[data])).map(|_| ())
}

fn one_entry(store: &Script, notes: &mut Notes) -> Result<(), ObjectError> {
    let (mut writer, _) = begin(store, notes, 1)?;
    append(&mut writer, notes, &[11]).map(|_| ())
}

/// Joins what it has found, and appends nothing.
fn joiner(store: &Script, notes: &mut Notes) -> Result<(), ObjectError> {
    let (mut writer, state) = begin(store, notes, 2)?;
    join(store, &mut writer, &state).map(|_| ())
}

/// Two overlapping PUTs, joined, and one more.
fn first_writer(store: &Script, notes: &mut Notes) -> Result<(), ObjectError> {
    let (mut writer, mut state) = begin(store, notes, 1)?;
    state.extend(append(&mut writer, notes, &[11, 12])?);
    join(store, &mut writer, &state)?;
    append(&mut writer, notes, &[13]).map(|_| ())
}

/// Two overlapping PUTs.
fn short_writer(store: &Script, notes: &mut Notes) -> Result<(), ObjectError> {
    let (mut writer, _) = begin(store, notes, 1)?;
    append(&mut writer, notes, &[11, 12])?;
    append(&mut writer, notes, &[13]).map(|_| ())
}

/// Joins what it has found, so that the objects of the first writer are deleted.
fn second_writer(store: &Script, notes: &mut Notes) -> Result<(), ObjectError> {
    let (mut writer, mut state) = begin(store, notes, 2)?;
    state.extend(append(&mut writer, notes, &[21])?);
    join(store, &mut writer, &state).map(|_| ())
}

fn third_writer(store: &Script, notes: &mut Notes) -> Result<(), ObjectError> {
    let (mut writer, _) = begin(store, notes, 3)?;
    append(&mut writer, notes, &[31]).map(|_| ())
}

/// Publishes five manifests, so that some are deleted.
fn publisher(store: &Script, notes: &mut Notes) -> Result<(), ObjectError> {
    let (mut writer, mut state) = begin(store, notes, 1)?;
    for entry in [11, 12, 13, 14] {
        state.extend(append(&mut writer, notes, &[entry])?);
        let manifests = writer.publish(writer.next_log(), encode(&state))?;
        manifests.iter().try_for_each(|name| store.delete(*name))?;
    }
    Ok(())
}

/// Reads the newest state, again if objects were deleted meanwhile.
fn reader(store: &Script, notes: &mut Notes) -> Result<(), ObjectError> {
    let mut before = None;
    loop {
        let recovered = match read_newest(store, THINNING) {
            Err(ObjectError::NoVolume) => {
                notes.read = Some(Vec::new());
                return Ok(());
            }
            recovered => recovered?,
        };
        match entries(store, &names(&recovered)) {
            Err(error @ ObjectError::Missing(_)) if before.as_ref() == Some(&recovered) => {
                return Err(error);
            }
            Err(ObjectError::Missing(_)) => before = Some(recovered),
            read => {
                notes.read = Some(read?);
                return Ok(());
            }
        }
    }
}

/// Checks a state, as if all programs crashed there.
pub(crate) fn check(end: &End<'_>) -> Result<(), String> {
    let store = PlainStore(RefCell::new(end.objects.clone()));
    let last = match Writer::take_over(&store, Nonce([9; 16]), THINNING) {
        Ok((_, recovered)) => recovered.as_ref().map(names).unwrap_or_default(),
        Err(error) => return Err(format!("the last takeover: {error}")),
    };
    let last = entries(&store, &last).map_err(|error| format!("the last state: {error}"))?;
    let writers = end.programs.iter().filter(|program| program.notes.begun_with.is_some()).count();
    for program in &end.programs {
        check_notes(program, &last)?;
        match program.error {
            None => {}
            Some(ObjectError::TakenOver { .. } | ObjectError::Superseded(_))
                if end.programs.len() > 1 => {}
            // Another writer has the volume, and has deleted what this one reads.
            Some(ObjectError::Missing(_)) if program.notes.read.is_none() && writers > 1 => {}
            Some(error) => return Err(format!("a program ends with: {error}")),
        }
    }
    let is_alone =
        |program: &Ended<'_>| program.error.is_none() && program.notes.begun_with.is_some();
    if end.is_end && !end.programs.iter().any(|program| program.has_crashed || is_alone(program)) {
        return Err("every writer was refused".to_owned());
    }
    check_order(&last)
}

/// Compares what a program has promised or seen with what is left.
fn check_notes(program: &Ended<'_>, last: &[u8]) -> Result<(), String> {
    let Ended { notes: Notes { acknowledged, begun_with, read }, acknowledged_before, .. } =
        program;
    if !is_subsequence(acknowledged, last) {
        return Err(format!("acknowledged {acknowledged:?}, left {last:?}"));
    }
    if begun_with.as_ref().is_some_and(|begun_with| !last.starts_with(begun_with)) {
        return Err(format!("served {begun_with:?}, left {last:?}"));
    }
    let Some(read) = read else { return Ok(()) };
    if !last.starts_with(read) {
        return Err(format!("read {read:?}, left {last:?}"));
    }
    match acknowledged_before.iter().all(|entry| read.contains(entry)) {
        true => Ok(()),
        false => Err(format!("acknowledged {acknowledged_before:?}, and then read {read:?}")),
    }
}

/// Entries of one writer follow each other in their order, without a gap.
fn check_order(last: &[u8]) -> Result<(), String> {
    for writer in 1..=3 {
        let own = last.iter().copied().filter(|entry| entry / 10 == writer).collect::<Vec<_>>();
        let expected = (1..).map(|entry| writer * 10 + entry).take(own.len()).collect::<Vec<_>>();
        let at = last.iter().position(|entry| entry / 10 == writer).unwrap_or(0);
        if own != expected || last[at..at + own.len()] != own {
            return Err(format!("entries are mixed or missing: {last:?}"));
        }
    }
    Ok(())
}

fn is_subsequence(some: &[u8], all: &[u8]) -> bool {
    let mut rest = all.iter();
    some.iter().all(|entry| rest.any(|other| other == entry))
}
