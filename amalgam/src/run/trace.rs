//! `--trace`: phases, calls and bytes of every step, as a file that Perfetto and chrome://tracing open.
//!
//! The format is the JSON array of Chrome's trace events. Every piece ends with the array's closing bracket,
//! which the next piece overwrites. So the file is JSON at every moment, however the run ends.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::observers::{Seen, Watch};
use amalgam_coordinator::{Phase, Simulation, Spans};

/// Events are written in pieces of about this size [bytes].
const PIECE_BYTES: usize = 64 << 10;

/// Time after which a piece is written though it is smaller.
const PIECE_INTERVAL: Duration = Duration::from_secs(1);

/// Largest trace [bytes]: later steps are left out.
const TRACE_BYTES_MAX: u64 = 1 << 30;

/// The end of the array.
const CLOSING: &[u8] = b"\n]\n";

/// Writes a trace while a run goes on.
pub(super) struct Trace {
    path: PathBuf,
    file: File,
    /// Bytes in the file before the closing bracket.
    length: u64,
    piece: String,
    written: Instant,
    start: Instant,
    named: bool,
    /// Steps that were seen.
    steps: u64,
}

impl Trace {
    /// Creates the file.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(b"[")?;
        file.write_all(CLOSING)?;
        let now = Instant::now();
        let (path, piece) = (path.to_path_buf(), String::new());
        Ok(Self { path, file, length: 1, piece, written: now, start: now, named: false, steps: 0 })
    }

    fn micros(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.start).as_nanos() as f64 / 1e3
    }

    /// Adds an event: all of its fields but the process.
    fn push(&mut self, fields: std::fmt::Arguments<'_>) {
        let comma = if self.length == 1 && self.piece.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(self.piece, "{comma}\n{{\"pid\":1,{fields}}}");
    }

    fn span(&mut self, name: &str, thread: usize, span: [Instant; 2], arguments: &str) {
        let [start, end] = span.map(|at| self.micros(at));
        let length = (end - start).max(0.0);
        self.push(format_args!(
            "\"ph\":\"X\",\"name\":\"{name}\",\"tid\":{thread},\"ts\":{start:.3},\"dur\":{length:.3},\"args\":{{{arguments}}}"
        ));
    }

    /// Writes the spans up to the end of a step.
    fn spans(&mut self, spans: &Spans, step: u64) {
        let about = format!("\"step\":{step}");
        for span in &spans.phases {
            self.span(span.phase.name(), 0, [span.start, span.end], &about);
        }
        for call in &spans.calls {
            let (out, back) = (call.bytes_out, call.bytes_in);
            let arguments = format!("\"step\":{step},\"bytes_out\":{out},\"bytes_in\":{back}");
            self.span(call.call, call.participant + 1, [call.asked, call.answered], &arguments);
        }
    }

    /// Names the process and its tracks.
    fn name(&mut self, simulation: &Simulation) {
        if std::mem::replace(&mut self.named, true) {
            return;
        }
        let names = std::iter::once("coordinator".to_string())
            .chain(simulation.traffic().map(|traffic| format!("waiting for {}", traffic.name)));
        for (thread, name) in names.collect::<Vec<_>>().into_iter().enumerate() {
            self.push(format_args!(
                "\"ph\":\"M\",\"name\":\"thread_name\",\"tid\":{thread},\"args\":{{\"name\":{name:?}}}"
            ));
            self.push(format_args!(
                "\"ph\":\"M\",\"name\":\"thread_sort_index\",\"tid\":{thread},\"args\":{{\"sort_index\":{thread}}}"
            ));
        }
    }

    /// Writes the pending events: over the closing bracket, with another after it, in one piece.
    fn write(&mut self) -> Result<(), String> {
        let events = self.piece.len() as u64;
        if self.length + events > TRACE_BYTES_MAX {
            let path = self.path.display();
            return Err(format!("the trace {path} has {TRACE_BYTES_MAX} bytes; later steps are left out"));
        }
        let mut bytes = std::mem::take(&mut self.piece).into_bytes();
        bytes.extend_from_slice(CLOSING);
        let at = SeekFrom::Start(self.length);
        let written = self.file.seek(at).and_then(|_| self.file.write_all(&bytes));
        if let Err(error) = written {
            // Restores the file as it was; the disk may refuse this, too.
            let _ = self.file.set_len(self.length);
            let _ = self.file.seek(at).and_then(|_| self.file.write_all(CLOSING));
            return Err(format!("cannot write {}: {error}; later steps are left out", self.path.display()));
        }
        self.length += events;
        self.written = Instant::now();
        Ok(())
    }
}

impl Watch for Trace {
    fn wants_spans(&self) -> bool {
        true
    }

    fn begin(&mut self, simulation: &Simulation) -> Result<(), String> {
        self.name(simulation);
        self.write()
    }

    fn step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let record = seen.record;
        self.spans(seen.spans, record.step);
        self.steps = record.step + 1;
        let between = [Phase::Frames, Phase::Files, Phase::Checkpoints];
        let own = seen.spans.phases.iter().filter(|span| !between.contains(&span.phase));
        let (starts, ends) = (own.clone().map(|span| span.start), own.map(|span| span.end));
        if let (Some(start), Some(end)) = (starts.min(), ends.max()) {
            let arguments = format!(
                "\"time\":{:e},\"dt\":{:e},\"stages\":{},\"contacts\":{},\"groups\":{}",
                record.time, record.dt, record.stages, record.active, record.groups
            );
            self.span(&format!("step {}", record.step), 0, [start, end], &arguments);
        }
        let now = self.micros(Instant::now());
        for (k, traffic) in seen.simulation.traffic().enumerate() {
            let calls = seen.spans.calls.iter().filter(|call| call.participant == k);
            let (out, back) =
                calls.fold((0, 0), |(out, back), call| (out + call.bytes_out, back + call.bytes_in));
            let name = traffic.name;
            self.push(format_args!(
                "\"ph\":\"C\",\"name\":\"bytes of {name}\",\"tid\":{},\"ts\":{now:.3},\"args\":{{\"out\":{out},\"in\":{back}}}",
                k + 1
            ));
        }
        if self.piece.len() >= PIECE_BYTES || self.written.elapsed() >= PIECE_INTERVAL {
            self.write()?;
        }
        Ok(())
    }

    fn recovered(&mut self, steps: u64) {
        let now = self.micros(Instant::now());
        self.push(format_args!(
            "\"ph\":\"i\",\"s\":\"p\",\"name\":\"back to step {steps}\",\"tid\":0,\"ts\":{now:.3}"
        ));
    }

    fn end(&mut self, spans: &Spans) -> Result<(), String> {
        self.spans(spans, self.steps);
        self.write()
    }
}
