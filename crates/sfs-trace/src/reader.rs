//! Reading a trace, one line at a time.

use std::io::{BufRead, Read};

use crate::error::{LineError, TraceError};
use crate::frame::{COLUMNS, HEADING, TraceEnd, TraceProperties};
use crate::request::TraceRequest;

/// Maximum length of a line, in bytes: two names of 255 bytes, all escaped, and the numbers.
pub const LINE_LEN_MAX: usize = 2048;

/// Reader of a trace: an iterator over its requests. A last line without an end, as a recording that was killed leaves
/// it, is skipped.
pub struct TraceReader<R> {
    source: R,
    line: Vec<u8>,
    line_no: u64,
    properties: TraceProperties,
    end: Option<TraceEnd>,
    is_over: bool,
}

impl<R: BufRead> TraceReader<R> {
    /// Reads the lines before the first request.
    ///
    /// # Errors
    ///
    /// If `source` is not a trace of this version, or cannot be read.
    pub fn open(source: R) -> Result<Self, TraceError> {
        let properties = TraceProperties::default();
        let (line, line_no) = (Vec::new(), 0);
        let mut reader = Self { source, line, line_no, properties, end: None, is_over: false };
        if reader.next_line()?.as_deref() != Some(HEADING) {
            return Err(reader.error(LineError::Heading));
        }
        loop {
            match reader.next_line()?.as_deref() {
                Some(COLUMNS) => return Ok(reader),
                Some(line) if line.starts_with('#') => {
                    if !reader.properties.take(line) {
                        return Err(reader.error(LineError::Number));
                    }
                }
                _ => return Err(reader.error(LineError::Heading)),
            }
        }
    }

    /// Returns the state of the volume when the recording began.
    pub fn properties(&self) -> &TraceProperties {
        &self.properties
    }

    /// Returns the last line of the trace, once all requests were read; `None` for a trace that was cut off.
    pub fn end(&self) -> Option<TraceEnd> {
        self.end
    }

    fn error(&self, reason: LineError) -> TraceError {
        TraceError::Line { line: self.line_no, reason }
    }

    /// Reads a line without its end; `None` at the end of the file, and for a line that was cut off.
    fn next_line(&mut self) -> Result<Option<String>, TraceError> {
        self.line.clear();
        self.line_no += 1;
        let mut bounded = (&mut self.source).take(LINE_LEN_MAX as u64 + 1);
        bounded.read_until(b'\n', &mut self.line)?;
        if self.line.len() > LINE_LEN_MAX {
            return Err(self.error(LineError::Text));
        }
        if self.line.pop() != Some(b'\n') {
            return Ok(None);
        }
        let line = str::from_utf8(&self.line).map_err(|_| self.error(LineError::Text))?;
        Ok(Some(line.to_owned()))
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, TraceError> {
        loop {
            let Some(line) = self.next_line()? else { return Ok(None) };
            if !line.starts_with('#') {
                return line.parse().map(Some).map_err(|reason| self.error(reason));
            }
            self.end = TraceEnd::parse(&line).or(self.end);
        }
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<TraceRequest, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.next_request().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TraceOperation;

    fn read(text: &[u8]) -> Result<(Vec<TraceRequest>, Option<TraceEnd>), String> {
        let mut reader = TraceReader::open(text).map_err(|error| error.to_string())?;
        let requests: Result<Vec<_>, _> = reader.by_ref().collect();
        Ok((requests.map_err(|error| error.to_string())?, reader.end()))
    }

    fn trace(rest: &str) -> String {
        let properties =
            TraceProperties { size_bytes: 7, policy: "sfs".into(), ..Default::default() };
        // An empty victim policy gives a line without a value, which is skipped.
        format!("{properties}{rest}")
    }

    #[test]
    fn a_trace_survives_writing_and_reading() {
        let request = TraceRequest { len: 5, ..TraceRequest::new(TraceOperation::Write, 2) };
        let end = TraceEnd { requests: 1, lost: 0 };
        let text = trace(&format!("{request}\n# a comment\n{end}"));
        assert_eq!(read(text.as_bytes()), Ok((vec![request], Some(end))));
        let reader = TraceReader::open(text.as_bytes()).expect("a trace");
        assert_eq!(reader.properties().size_bytes, 7);
        assert_eq!(reader.properties().policy, "sfs");
    }

    #[test]
    fn a_trace_that_was_cut_off_has_no_end() {
        let text = trace("1,write,2,0,4096,5,0,0\n2,write,2,40");
        let (requests, end) = read(text.as_bytes()).expect("a trace");
        assert_eq!((requests.len(), end), (1, None));
    }

    #[test]
    fn malformed_traces_are_refused_by_their_line() {
        for (text, error) in [
            (b"".to_vec(), "line 1: not a trace of version 1"),
            (b"# sfs-trace 2\n".to_vec(), "line 1: not a trace of version 1"),
            (b"# sfs-trace 1\n# x\n".to_vec(), "line 3: not a trace of version 1"),
            (b"# sfs-trace 1\n# size_bytes x\n".to_vec(), "line 2: not a number"),
            (trace("nonsense\n").into(), "line 11: a request has 8 to 10 fields"),
            (vec![b'#'; 1 << 20], "line 1: not a line of a trace"),
            ([trace("").as_bytes(), b"\xff\n"].concat(), "line 11: not a line of a trace"),
        ] {
            let refused = read(&text).expect_err("no trace");
            assert!(refused.starts_with(error), "{refused}, not {error}");
        }
    }
}
