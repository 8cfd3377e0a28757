//! The load of a mounted volume, from a trace that `sfs-ctl trace` has recorded (`docs/trace-format.md`), or from system
//! calls in the text of Mobibench.
//!
//! A [`RequestLoad`] has the requests that change the content of files or make it durable, and reads; requests that
//! failed are left out. [`RequestLoad::sampled`] is a part of it for a smaller volume.

mod footprint;
mod sample;
mod system_calls;

use std::path::Path;

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashMap;
use sfs_trace::{TraceEnd, TraceOperation, TraceProperties, TraceReader, TraceRequest};

use crate::trace_text;

pub(crate) use system_calls::is_call;

/// Largest length of a read, write or copy, in bytes: more than the kernel's largest.
const DATA_LEN_MAX: u64 = 1 << 32;

/// Load of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLoad {
    /// State of the volume when the recording began; numbers are 0 if the trace does not state them.
    pub properties: TraceProperties,
    /// Last line of the trace; `None` if the trace was cut off.
    pub end: Option<TraceEnd>,
    /// Files that have operations, by the order of their first one.
    pub files: Vec<LoadedFile>,
    /// Operations, in their order.
    pub operations: Vec<LoadOperation>,
}

/// File of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedFile {
    /// Inode number on the traced volume.
    pub ino: u64,
    /// Offset after the last byte that an operation writes or reads.
    pub end: u64,
    /// `true` if the first operation makes the file.
    pub is_made: bool,
}

/// Operation of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOperation {
    /// Microseconds since the recording began.
    pub at_us: u64,
    /// Index of the file in [`RequestLoad::files`]; 0 without meaning for [`LoadAction::SyncAll`].
    pub file: u32,
    /// Action.
    pub action: LoadAction,
}

/// Action of an operation. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the line above explains the fields")]
pub enum LoadAction {
    /// The file is made.
    Make,
    /// Data is read.
    Read { offset: u64, len: u64 },
    /// Data is written, or copied from another file.
    Write { offset: u64, len: u64 },
    /// The length changes.
    Truncate { size: u64 },
    /// A range reads as zeros from now on.
    Punch { offset: u64, len: u64 },
    /// The file becomes durable.
    Sync,
    /// All files become durable.
    SyncAll,
    /// The file loses its last name.
    Delete,
}

impl RequestLoad {
    /// Reads a trace, plain or compressed by zstd: one of a mounted volume, or system calls in the text of Mobibench
    /// (`docs/lab/traces.md`).
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is no trace of requests.
    pub fn open(path: &Path) -> Result<Self> {
        Self::parse(&trace_text::read(path)?).with_context(|| path.display().to_string())
    }

    /// Parses the text of a trace.
    ///
    /// # Errors
    ///
    /// As [`RequestLoad::open`]; the error names the line.
    pub fn parse(text: &str) -> Result<Self> {
        if is_call(text.lines().next().unwrap_or("")) {
            return Self::of_calls(text);
        }
        let mut reader = TraceReader::open(text.as_bytes())?;
        let mut load = Self {
            properties: reader.properties().clone(),
            end: None,
            files: Vec::new(),
            operations: Vec::new(),
        };
        let mut indices = FxHashMap::default();
        for request in reader.by_ref() {
            load.add(&request?, &mut indices)?;
        }
        load.end = reader.end();
        Ok(load)
    }

    fn of_calls(text: &str) -> Result<Self> {
        let properties = TraceProperties::default();
        let mut load = Self { properties, end: None, files: Vec::new(), operations: Vec::new() };
        let mut indices = FxHashMap::default();
        let requests = system_calls::requests(text)?;
        requests.iter().try_for_each(|request| load.add(request, &mut indices))?;
        load.end = Some(TraceEnd { requests: requests.len() as u64, lost: 0 });
        Ok(load)
    }

    /// Returns the number of bytes that the operations write.
    pub fn written_bytes(&self) -> u64 {
        let written = |operation: &LoadOperation| match operation.action {
            LoadAction::Write { len, .. } => len,
            _ => 0,
        };
        self.operations.iter().map(written).sum()
    }

    /// Returns the microseconds from the beginning to the last operation.
    pub fn duration_us(&self) -> u64 {
        self.operations.iter().map(|operation| operation.at_us).max().unwrap_or(0)
    }

    fn add(&mut self, request: &TraceRequest, indices: &mut FxHashMap<u64, u32>) -> Result<()> {
        let TraceRequest { at_us, inode, offset, len, .. } = *request;
        let action = match request.operation {
            _ if request.errno != 0 => return Ok(()),
            TraceOperation::Create => LoadAction::Make,
            TraceOperation::Read => LoadAction::Read { offset, len },
            TraceOperation::Write | TraceOperation::Copy => LoadAction::Write { offset, len },
            TraceOperation::Truncate => LoadAction::Truncate { size: offset },
            TraceOperation::Punch | TraceOperation::Zero => LoadAction::Punch { offset, len },
            TraceOperation::Fsync | TraceOperation::Fdatasync => LoadAction::Sync,
            TraceOperation::Syncfs => LoadAction::SyncAll,
            TraceOperation::Unlink if len == 0 => LoadAction::Delete,
            _ => return Ok(()),
        };
        let has_data = matches!(action, LoadAction::Read { .. } | LoadAction::Write { .. });
        if has_data && len > DATA_LEN_MAX {
            bail!("{len} bytes in one request at {at_us} us: no volume has recorded that");
        }
        if action == LoadAction::SyncAll {
            self.operations.push(LoadOperation { at_us, file: 0, action });
            return Ok(());
        }
        let next = u32::try_from(self.files.len());
        let Ok(next) = next else { bail!("the trace has too many files") };
        let file = *indices.entry(inode).or_insert(next);
        if file == next {
            let is_made = action == LoadAction::Make;
            self.files.push(LoadedFile { ino: inode, end: 0, is_made });
        }
        if let LoadAction::Read { offset, len } | LoadAction::Write { offset, len } = action {
            let end = &mut self.files[file as usize].end;
            *end = (*end).max(offset + len);
        }
        self.operations.push(LoadOperation { at_us, file, action });
        Ok(())
    }
}
